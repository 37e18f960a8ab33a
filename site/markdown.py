"""Reads what the site needs of Markdown: headings, sections and links outside code."""

import re

FENCE = re.compile(r"^ *```")
HEADING = re.compile(r"^(#{1,6}) +(.*?)\s*$")
# A code span, or the target of a link. A link in a code span is no link.
LINK = re.compile(
    r"(?P<code>(?P<ticks>`+).+?(?<!`)(?P=ticks)(?!`))|\]\((?P<target>[^()\s]+)\)", re.S
)


def mark_lines(text):
    """Yields each line, and whether it is part of a fenced block."""
    fenced = False
    for line in text.splitlines(keepends=True):
        is_fence = bool(FENCE.match(line))
        yield line, fenced or is_fence
        fenced ^= is_fence


def headings(text):
    """Yields the line number, level and text of each heading."""
    for at, (line, fenced) in enumerate(mark_lines(text)):
        found = None if fenced else HEADING.match(line)
        if found:
            yield at, len(found[1]), found[2]


def anchor(heading):
    """The anchor that GitHub and mdBook give a heading."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    kept = (it for it in heading.lower() if it.isalnum() or it in "-_ ")
    return "".join(kept).strip().replace(" ", "-")


def anchors(text):
    found, counts = set(), {}
    for _, _, heading in headings(text):
        base = anchor(heading)
        found.add(base if base not in counts else f"{base}-{counts[base]}")
        counts[base] = counts.get(base, 0) + 1
    return found


def section_headings(text):
    """The sections of a document, with "" for the text before the first one."""
    return [""] + [heading for _, level, heading in headings(text) if level == 2]


def section(text, wanted):
    """The section with this heading and all sections below it, or None."""
    lines = text.splitlines(keepends=True)
    found = list(headings(text))
    if wanted == "":
        end = next((at for at, level, _ in found if level == 2), len(lines))
        return "".join(lines[:end])
    for index, (start, level, heading) in enumerate(found):
        if heading == wanted:
            later = (at for at, other, _ in found[index + 1 :] if other <= level)
            return "".join(lines[start : next(later, len(lines))])
    return None


def raise_headings(text):
    """Makes the first heading one of level 1, and raises the others as much."""
    raised = next(headings(text))[1] - 1
    starts = {at for at, _, _ in headings(text)}
    lines = text.splitlines(keepends=True)
    return "".join(line[raised:] if at in starts else line for at, line in enumerate(lines))


def rewrite_links(text, resolve):
    """Replaces the target of each link outside code."""
    parts, prose = [], []

    def replace(match):
        return match[0] if match["code"] else f"]({resolve(match['target'])})"

    def end_prose():
        parts.append(LINK.sub(replace, "".join(prose)))
        prose.clear()

    for line, fenced in mark_lines(text):
        if fenced:
            end_prose()
            parts.append(line)
        else:
            prose.append(line)
    end_prose()
    return "".join(parts)
