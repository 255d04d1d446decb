"""Which commit a result belongs to."""
import os
import pathlib
import subprocess


def commit():
    """The full id, with "-dirty" behind it if files differ; without a git repository what FLASH_COMMIT says."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        git = subprocess.run(command, cwd=pathlib.Path(__file__).parent, capture_output=True, text=True).stdout.strip()
    except OSError:  # no git here
        git = ""
    return git or os.environ.get("FLASH_COMMIT")
