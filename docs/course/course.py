#!/usr/bin/env python3
from kit.main import main  # the course: course.py --help

main()
