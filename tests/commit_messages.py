"""The form of a commit's message: one area, what is true now, and why. CONTRIBUTING has it in words.

``python tests/commit_messages.py FILE`` checks a message before it is committed: pre-commit calls it.
"""

import re
import sys
from pathlib import Path

SUBJECT_MAX = 72  # what `git log --oneline` shows on a screen of 80 columns
SUBJECT = re.compile(r"[\w./ -]+: \S")


def faults(message: str) -> list[str]:
    """Return the faults of a message, each in a sentence."""
    lines = [line.rstrip() for line in message.splitlines() if not line.startswith("#")]
    subject, rest = (lines or [""])[0], lines[1:]
    found = []
    if len(subject) > SUBJECT_MAX:
        found.append(f"the subject has {len(subject)} characters, at most {SUBJECT_MAX}: {subject!r}")
    if not SUBJECT.match(subject):
        found.append(f"the subject begins with no area and a colon, as in 'logs: …': {subject!r}")
    if ";" in subject or subject.count(": ") > 1:
        found.append(f"the subject names two things, which are two commits: {subject!r}")
    if rest[:1] != [""] or not any(rest):
        found.append(f"below the subject a blank line and the reason are missing: {subject!r}")
    return found


if __name__ == "__main__":
    wrong = faults(Path(sys.argv[1]).read_text())
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    sys.exit(bool(wrong))
