"""The pages of the HTTP API and of the admin API, from docs/openapi.yaml."""

import json
import re

import yaml

TITLES = {"http-api": ("HTTP API", "public"), "admin-api": ("Admin API", "admin")}


def render(path, kind):
    """Returns the page of the routes with one tag."""
    title, tag = TITLES[kind]
    return ApiPage(yaml.safe_load(path.read_text()), tag).render(title)


def cell(text):
    """A text as a cell of a table."""
    return link_documents(" ".join(str(text).split())).replace("|", "\\|")


def link_documents(text):
    """Makes links of the documents that a description names."""
    return re.sub(r"\bdocs/([a-z-]+\.md)\b", r"[\1](\1)", text)


def table(header, rows):
    if not rows:
        return ""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines) + "\n\n"


class ApiPage:
    def __init__(self, document, tag):
        self.document = document
        self.tag = tag
        self.components = document["components"]
        self.paths = {
            path: item
            for path, item in document["paths"].items()
            if any(tag in it["tags"] for it in operations(item).values())
        }

    def render(self, title):
        text = f"# {title}\n\n"
        text += "[openapi.yaml](openapi.yaml) is the same for programs (OpenAPI 3.1).\n"
        if self.tag == "public":
            text += "\n" + link_documents(self.document["info"]["description"])
        else:
            tags = {it["name"]: it["description"] for it in self.document["tags"]}
            text += f"\n{tags['admin']} [operations.md](operations.md) explains the pages.\n"
        text += self.credentials() + "\n"
        for path, item in self.paths.items():
            text += self.route(path, item)
        return text + self.answers() + self.schemas() + self.headers()

    def credentials(self):
        name = "key" if self.tag == "public" else "token"
        heading = "API key" if name == "key" else "Token"
        described = self.components["securitySchemes"][name]["description"]
        needs = f"Each route below needs the {name}, unless it says that it needs none."
        return f"\n## {heading}\n\n{described}\n{needs}\n"

    def resolve(self, value):
        """Follows a reference, and keeps what stands beside it."""
        while isinstance(value, dict) and "$ref" in value:
            rest = {name: it for name, it in value.items() if name != "$ref"}
            target = self.document
            for part in value["$ref"][2:].split("/"):
                target = target[part]
            value = target | rest
        return value

    def route(self, path, item):
        main = next(it for it in ("get", "post") if it in item)
        operation = item[main]
        text = f"## `{main.upper()} {path}`\n\n{operation['summary']}.\n\n"
        text += link_documents(operation.get("description", "")) + "\n\n"
        needs = operation.get("security", self.document["security"])
        if needs == [] and "Needs no" not in text:
            text += f"Needs no {'key' if self.tag == 'public' else 'token'}.\n\n"
        for method in ("head", "options"):
            if method in item:
                other = item[method]
                own = other.get("description", "") if method == "options" else ""
                text += f"`{method.upper()}`: {other['summary']}. {own}".strip() + "\n\n"
        text += self.parameters(operation) + self.body(operation)
        return text + self.responses(operation)

    def parameters(self, operation):
        rows = []
        for parameter in map(self.resolve, operation.get("parameters", [])):
            kind = parameter["in"] + ("" if parameter.get("required") else ", optional")
            meaning = parameter.get("description", "")
            if "example" in parameter:
                meaning = f"{meaning.strip()} Example: `{parameter['example']}`"
            rows.append([f"`{parameter['name']}`", kind, cell(meaning)])
        return table(["Parameter", "In", "Meaning"], rows)

    def body(self, operation):
        if "requestBody" not in operation:
            return ""
        body = operation["requestBody"]
        kind, content = next(iter(body["content"].items()))
        text = f"Body, `{kind}`: {body['description']}\n\n" + self.members(content["schema"])
        return text + self.example(content)

    def responses(self, operation):
        rows, shared = [], []
        for status, response in operation["responses"].items():
            if "$ref" in response:
                name = response["$ref"].rsplit("/", 1)[1]
                shared.append(f"[{status} {name}](#{name.lower()}-answer)")
                continue
            fields = self.field_names(response)
            rows.append([status, cell(response["description"]), self.content(response), fields])
        text = table(["Status", "When", "Body", "[Fields](#header-fields)"], rows)
        if shared:
            text += f"Other answers: {', '.join(shared)}.\n\n"
        content = next(iter(operation["responses"].get("200", {}).get("content", {}).values()), {})
        return text + self.example(content)

    def example(self, content):
        if "example" not in content:
            return ""
        return f"```json\n{json.dumps(content['example'], indent=2)}\n```\n\n"

    def content(self, response):
        """The body of a response, with links to its schemas."""
        texts = []
        for kind, content in response.get("content", {}).items():
            schema = content["schema"]
            if schema is True:
                texts.append("any")
                continue
            options = schema.get("oneOf", [schema])
            for option in options:
                texts.append(self.schema_link(option) or f"`{kind}` {self.type_of(option)}")
        return cell(" or ".join(texts) or "none")

    def schema_link(self, schema):
        if "$ref" not in schema:
            return None
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"

    def field_names(self, response):
        return ", ".join(f"`{name}`" for name in response.get("headers", {})) or "none"

    def type_of(self, schema):
        """The values of a schema in words."""
        if "oneOf" in schema:
            return " or ".join(self.schema_link(it) or self.type_of(it) for it in schema["oneOf"])
        schema = self.resolve(schema)
        if "const" in schema:
            return f"`{json.dumps(schema['const'])}`"
        if "enum" in schema:
            return " or ".join(f"`{json.dumps(it)}`" for it in schema["enum"])
        kinds = schema.get("type", "any")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        text = " or ".join(kinds)
        if "minimum" in schema or "maximum" in schema:
            low, high = schema.get("minimum"), schema.get("maximum")
            text += f", {low:,} to {high:,}" if high is not None else f", {low:,} or more"
        if schema.get("format") == "date-time":
            text += ", RFC 3339"
        if "array" in kinds and "items" in schema:
            items = schema["items"]
            text += " of " + (self.schema_link(items) or self.type_of(items))
        return text

    def members(self, schema, prefix=""):
        """The table of the members of an object, with those of objects in it."""
        rows = []
        self.add_members(self.resolve(schema), prefix, rows)
        return table(["Member", "Value", "Meaning"], rows)

    def add_members(self, schema, prefix, rows):
        required = schema.get("required", [])
        for name, member in schema.get("properties", {}).items():
            found = self.resolve(member)
            value = self.type_of(member) + ("" if name in required else "; may be absent")
            rows.append([f"`{prefix}{name}`", cell(value), cell(found.get("description", ""))])
            inner = self.resolve(found.get("items", {}))
            if "properties" in found:
                self.add_members(found, f"{prefix}{name}.", rows)
            elif "properties" in inner:
                self.add_members(inner, f"{prefix}{name}[].", rows)

    def answers(self):
        """The answers that several routes share. The public page has those that no route names."""
        names = self.referenced("responses")
        if self.tag == "public":
            every = ApiPage(self.document, "admin").referenced("responses")
            names = [it for it in self.components["responses"] if it not in every]
        text = "## Shared answers\n\n"
        for name in names:
            response = self.components["responses"][name]
            fields = self.field_names(response)
            text += f"### {name} answer\n\n{link_documents(response['description'])}\n\n"
            text += f"Body: {self.content(response)}. [Fields](#header-fields): {fields}.\n\n"
        return text

    def referenced(self, kind):
        """The components of one kind that the routes lead to, in the order of the document."""
        found, waiting = set(), [self.paths]
        if self.tag == "public":
            responses = self.components["responses"]
            waiting += [it for name, it in responses.items() if name.startswith("EmailRefused")]
        while waiting:
            text = json.dumps(waiting.pop())
            for group, name in re.findall(r'"#/components/(\w+)/([\w-]+)"', text):
                if (group, name) not in found:
                    found.add((group, name))
                    waiting.append(self.components[group][name])
        return [name for name in self.components[kind] if (kind, name) in found]

    def schemas(self):
        text = "## Bodies\n\n"
        names = self.referenced("schemas")
        if self.tag == "public":
            names += ["CheckAnswer"]
        for name in names:
            schema = self.components["schemas"][name]
            text += f"### {name}\n\n{link_documents(schema.get('description', ''))}\n\n"
            members = self.members(schema)
            text += members or f"Value: {cell(self.type_of(schema))}.\n\n"
        return text

    def headers(self):
        rows = []
        for name in self.referenced("headers"):
            header = self.components["headers"][name]
            always = "always" if header.get("required") else "sometimes"
            value = self.type_of(header["schema"])
            rows.append([f"`{name}`", always, cell(value), cell(header.get("description", ""))])
        text = "## Header fields\n\n"
        text += "*Always* means: each answer that lists the field above has it.\n\n"
        return text + table(["Field", "Sent", "Value", "Meaning"], rows)


def operations(item):
    return {method: item[method] for method in item if method in ("get", "head", "options", "post")}
