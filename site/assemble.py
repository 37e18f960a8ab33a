"""Writes the pages of the site: documents of the repository, with links that fit the site.

    assemble.py ROOT BINARY OUT

OUT gets a file for each page of pages.toml, SUMMARY.md, and the files that pages show or link to.
A link to another document becomes a link to its page. A link to any other file or directory of the
repository becomes a link to the repository. The script stops if a link or a heading does not exist.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import api_pages
import markdown
import options_page

# Files that are copied, so that a page can show them.
COPIED_SUFFIXES = {".png", ".svg"}
# Generated pages, and the file that a link to them may name.
GENERATED_FROM = {"http-api": "docs/openapi.yaml", "admin-api": "docs/openapi.yaml"}


class Page:
    """A page: its row in pages.toml, and its text before the links are rewritten."""

    def __init__(self, row, root, binary):
        self.name = row["page"]
        self.title = row["title"]
        self.source = row.get("source")
        self.sections = row.get("sections")
        self.files = [file for path in row.get("files", []) for file in list_files(root, path)]
        self.shown_paths = row.get("files", [])
        self.generated = row.get("generate")
        self.text = self.render(root, binary)
        self.anchors = markdown.anchors(self.text)

    def render(self, root, binary):
        if self.generated == "options":
            return options_page.render(binary)
        if self.generated:
            return api_pages.render(root / "docs/openapi.yaml", self.generated)
        text = ""
        if self.source:
            document = (root / self.source).read_text()
            text = document if self.sections is None else self.join_sections(document)
        else:
            text = f"# {self.title}\n"
        for file in self.files:
            text += show_file(root, file, bool(self.source) or len(self.files) > 1)
        return text

    def join_sections(self, document):
        found = [markdown.section(document, heading) for heading in self.sections]
        for heading, section in zip(self.sections, found):
            if section is None:
                sys.exit(f"site/pages.toml: {self.source} has no section {heading!r}")
        if len(found) == 1:
            return markdown.raise_headings(found[0])
        title = "" if self.sections[0] == "" else f"# {self.title}\n\n"
        return title + "\n".join(found)


def list_files(root, path):
    if (root / path).is_dir():
        return sorted(str(it.relative_to(root)) for it in (root / path).iterdir() if it.is_file())
    return [path]


def show_file(root, path, has_heading):
    languages = {".toml": "toml", ".yaml": "yaml", ".lua": "lua", ".rs": "rust"}
    languages |= {".service": "ini", ".conf": "nginx", ".yml": "yaml"}
    languages |= {".js": "js", ".mjs": "js", ".java": "java"}
    text = (root / path).read_text()
    language = "bash" if text.startswith("#!") else "text"
    language = languages.get(Path(path).suffix, language)
    heading = f"\n## {Path(path).name}\n" if has_heading else ""
    return f"{heading}\n[`{path}`](/{path})\n\n```{language}\n{text}```\n"


class Site:
    """All pages, and where a link to a file of the repository leads."""

    def __init__(self, root, binary, parts):
        self.root = root
        self.parts = [
            (part["title"], [Page(row, root, binary) for row in part["pages"]]) for part in parts
        ]
        self.pages = [page for _, pages in self.parts for page in pages]
        manifest = tomllib.loads((root / "Cargo.toml").read_text())
        self.repository = manifest["package"]["repository"]
        self.copied = set()
        self.faults = []

    def find_pages(self, path):
        """The pages that show a file or directory, in their order."""
        return [
            page
            for page in self.pages
            if page.source == path
            or GENERATED_FROM.get(page.generated) == path
            or any(path == shown or path in page.files for shown in page.shown_paths)
        ]

    def resolve(self, page, source, target):
        """The target of a link on a page, as the site has it."""
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            return target
        if target.startswith("/"):
            # The link to the file that a page shows.
            return self.repository_url(target[1:])
        if path == "" and page.sections is None:
            if anchor not in page.anchors:
                self.faults.append(f"{source}: no heading for #{anchor}")
            return target
        at = (self.root / source).parent / path if path else self.root / source
        if not at.exists():
            self.faults.append(f"{source}: {target} does not exist")
            return target
        name = str(at.resolve().relative_to(self.root))
        if GENERATED_FROM.get(page.generated) == name:
            # The file from which the page is made.
            self.copied.add(name)
            return at.name
        candidates = self.find_pages(name)
        if anchor:
            candidates = [it for it in candidates if anchor in it.anchors]
            if not candidates and at.suffix == ".md" and self.find_pages(name):
                self.faults.append(f"{source}: no heading for {target}")
        if candidates:
            best = page if page in candidates else candidates[0]
            return f"{best.name}.md" + (f"#{anchor}" if anchor else "")
        if at.suffix in COPIED_SUFFIXES and at.is_file():
            self.copied.add(name)
            return at.name
        return self.repository_url(name) + (f"#{anchor}" if anchor else "")

    def repository_url(self, path):
        kind = "tree" if (self.root / path).is_dir() else "blob"
        return f"{self.repository}/{kind}/main/{path}"

    def finish(self, page):
        source = page.source or GENERATED_FROM.get(page.generated, "README.md")
        text = markdown.rewrite_links(page.text, lambda to: self.resolve(page, source, to))
        text = re.sub(r"^```rust$", "```rust,ignore", text, flags=re.M)
        if page.source or page.generated in GENERATED_FROM:
            url = f"{self.repository}/edit/main/{source}"
            text += f'\n<p class="source">Source of this page: <a href="{url}">{source}</a></p>\n'
        return text

    def check_completeness(self):
        """Every document, and every section of README.md, is on a page."""
        patterns = ["*.md", "docs/*.md", "contrib/**/*.md"]
        documents = {it for pattern in patterns for it in self.root.glob(pattern)}
        for document in sorted(documents):
            name = str(document.relative_to(self.root))
            if not self.find_pages(name):
                self.faults.append(f"{name} is on no page: add it to site/pages.toml")
        shown = {it for page in self.pages for it in page.sections or []}
        for heading in markdown.section_headings((self.root / "README.md").read_text()):
            if heading not in shown:
                self.faults.append(f"README.md: section {heading!r} is on no page")

    def write(self, out):
        texts = {page.name: self.finish(page) for page in self.pages}
        self.check_completeness()
        if len({Path(name).name for name in self.copied}) < len(self.copied):
            self.faults.append(f"two of these files have one name: {sorted(self.copied)}")
        if self.faults:
            sys.exit("\n".join(self.faults))
        summary = ["# Summary"]
        for title, pages in self.parts:
            summary += ["", f"# {title}", ""]
            summary += [f"- [{page.title}]({page.name}.md)" for page in pages]
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        (out / "SUMMARY.md").write_text("\n".join(summary) + "\n")
        for name, text in texts.items():
            (out / f"{name}.md").write_text(text)
        for name in self.copied:
            shutil.copy(self.root / name, out / Path(name).name)


def main():
    root, binary, out = Path(sys.argv[1]).resolve(), sys.argv[2], Path(sys.argv[3])
    parts = tomllib.loads((root / "site/pages.toml").read_text())["part"]
    Site(root, binary, parts).write(out)
    # Editors can read the schema from the site.
    with open(out / "riskgate.schema.json", "w") as schema:
        subprocess.run([binary, "config", "schema"], stdout=schema, check=True)


main()
