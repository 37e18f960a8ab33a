"""The page with the help of every command, from the binary itself."""

import subprocess


def help_of(binary, words):
    ran = subprocess.run([binary, *words, "--help"], capture_output=True, text=True, check=True)
    return ran.stdout


def subcommands(text):
    """The names below "Commands:" in a help text."""
    names, is_listed = [], False
    for line in text.splitlines():
        if line == "Commands:":
            is_listed = True
        elif is_listed and line.startswith("  ") and not line.startswith("   "):
            names.append(line.split()[0])
        elif is_listed and not line.startswith(" "):
            break
    return [name for name in names if name != "help"]


def render(binary):
    parts = ["# Options of the commands\n\nWhat `riskgate COMMAND --help` prints.\n"]

    def add(words):
        text = help_of(binary, words)
        title = " ".join(["riskgate", *words])
        parts.append(f"## `{title}`\n\n```text\n{text.strip()}\n```\n")
        for name in subcommands(text):
            add([*words, name])

    add([])
    return "\n".join(parts)
