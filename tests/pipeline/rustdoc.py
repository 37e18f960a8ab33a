#!/usr/bin/env python3
"""Stands in for rustdoc in `cargo test --doc`: also documents the library, without a warning.

`cargo doc` would check each crate that the library needs again; this takes what the tests built.
"""

import os
import subprocess
import sys

from runner import TARGET


def main():
    words = sys.argv[1:]
    if "--test" in words:
        document = [word for word in words if word != "--test"]
        at = document.index("--test-run-directory")
        # The option and its value.
        del document[at:at + 2]
        command = ["rustdoc", *document, "-D", "warnings", "--out-dir", str(TARGET / "doc")]
        if code := subprocess.run(command).returncode:
            sys.exit(code)
    os.execvp("rustdoc", ["rustdoc", *words])


if __name__ == "__main__":
    main()
