"""A process of its own: which texts a regular expression is found in, by Python's own engine, which may never end."""

import json
import re
import sys


def main() -> None:
    """[pattern, texts] from stdin → the places of the texts that it is found in, to stdout."""
    pattern, texts = json.load(sys.stdin)
    search = re.compile(pattern).search
    json.dump([place for place, text in enumerate(texts) if search(text)], sys.stdout)


if __name__ == "__main__":
    main()
