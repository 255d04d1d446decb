"""The page that report.py writes, section by section."""
