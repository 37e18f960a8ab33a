"""Reads forms from standard input as sign-up backends do, and prints what each backend reads.

A line of input is JSON: {"type": CONTENT_TYPE, "body": BASE64}. The line of output for it is JSON:
{PARSER: [VALUE, …]}, with the values that the parser finds for the field "email", and for the field
"email" of "user". A parser that reads bodies of any type is missing if it finds nothing.
"""

import base64
import io
import json
import sys
import urllib.parse
import warnings

warnings.filterwarnings("ignore", category=DeprecationWarning)
import cgi  # noqa: E402

import django.conf  # noqa: E402
import python_multipart  # noqa: E402
import werkzeug.formparser  # noqa: E402

django.conf.settings.configure(DEFAULT_CHARSET="utf-8")
from django.core.handlers.wsgi import WSGIRequest  # noqa: E402

NAMES = ("email", "user[email]", "user.email", "email[]")


def texts(value):
    return [value] if isinstance(value, str) else []


def of_object(value):
    """The members that a backend with JSON reads."""
    if not isinstance(value, dict):
        return []
    user = value.get("user")
    return texts(value.get("email")) + (texts(user.get("email")) if isinstance(user, dict) else [])


def first_member_wins(pairs):
    found = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def environ(kind, body):
    return {"REQUEST_METHOD": "POST", "CONTENT_TYPE": kind, "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body), "PATH_INFO": "/", "SERVER_NAME": "x",
            "SERVER_PORT": "80", "wsgi.url_scheme": "http"}


def read_json(kind, body):
    yield "json", lambda: of_object(json.loads(body))
    yield "json, first member", lambda: of_object(
        json.loads(body, object_pairs_hook=first_member_wins))


def read_urlencoded(kind, body):
    for separator in "&;":
        def parse(separator=separator):
            fields = urllib.parse.parse_qs(body.decode("latin-1"), separator=separator)
            return [value for name in NAMES for value in fields.get(name, [])]
        yield f"urllib, {separator}", parse


def read_any_type(body):
    """As Go's json.Decoder and OpenResty read each body."""
    text = body.decode("utf-8", "replace")
    yield "json, first value, any type", lambda: of_object(
        json.JSONDecoder().raw_decode(text.removeprefix("\ufeff").lstrip())[0])
    fields = urllib.parse.parse_qs(text, separator="&")
    yield "urllib, any type", lambda: [
        value for name in NAMES for value in fields.get(name, []) if "\n" not in value]


def read_cgi(kind, body):
    form = cgi.FieldStorage(fp=io.BytesIO(body), environ=environ(kind, body), keep_blank_values=True)
    found = [value for name in NAMES for value in form.getlist(name)]
    return [value for value in found if isinstance(value, str)]


def read_werkzeug(kind, body):
    _, form, _ = werkzeug.formparser.parse_form_data(environ(kind, body), silent=False)
    return [value for name in NAMES for value in form.getlist(name)]


def read_django(kind, body):
    post = WSGIRequest(environ(kind, body)).POST
    return [value for name in NAMES for value in post.getlist(name)]


def read_python_multipart(kind, body):
    found = []

    def on_field(field):
        if (field.field_name or b"").decode("latin-1") in NAMES:
            found.append((field.value or b"").decode("utf-8"))

    python_multipart.parse_form({"Content-Type": kind.encode()}, io.BytesIO(body), on_field,
                                lambda file: None)
    return found


def parsers(kind, body):
    media_type = kind.split(";")[0].strip().lower()
    if media_type == "application/json":
        yield from read_json(kind, body)
        return
    if media_type == "application/x-www-form-urlencoded":
        yield from read_urlencoded(kind, body)
    for name, read in (("cgi", read_cgi), ("werkzeug", read_werkzeug), ("django", read_django),
                       ("python-multipart", read_python_multipart)):
        yield name, lambda read=read: read(kind, body)


for line in sys.stdin:
    case = json.loads(line)
    body = base64.b64decode(case["body"])
    found = {}
    for name, read in parsers(case["type"], body):
        try:
            found[name] = read()
        except Exception as error:  # The backend refuses the form.
            found[name] = []
    for name, read in read_any_type(body):
        try:
            values = read()
        except ValueError:
            values = []
        if values:
            found[name] = values
    print(json.dumps(found))
