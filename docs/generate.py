#!/usr/bin/env python3
"""Writes every generated part of the pages, or with --check names what is stale or broken: docs/tools/generate.py."""

import os
import sys
from pathlib import Path

os.chdir(Path(__file__).resolve().parents[1])
os.execv(sys.executable, [sys.executable, "-B", "-m", "docs.tools.generate", *sys.argv[1:]])
