"""A sign-up site in Django, as gunicorn runs it behind a proxy that ends TLS."""

import hashlib
import json
import os
import time

from django.conf import settings

PAGES = {
    "signup.html": """<!doctype html><title>Sign up</title>
        <form id=signup method=post action="/signup/">{% csrf_token %}
        {{ form.email.errors }}<input id=email name=email><button>Sign up</button></form>""",
    "welcome.html": """<!doctype html><title>Welcome</title><h1>Welcome, {{ email }}</h1>
        <form id=upload method=post action="/photo/" enctype="multipart/form-data">{% csrf_token %}
        <input id=photo name=photo type=file><button>Upload</button></form>
        <a id=export href="/export/">Export</a>""",
    "done.html": "<!doctype html><title>Done</title><p>{{ text }}</p>",
}

settings.configure(
    SECRET_KEY="only for tests, only for tests, only for tests, only for tests",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["127.0.0.1"],
    INSTALLED_APPS=["django.contrib.sessions", "corsheaders"],
    MIDDLEWARE=[
        "corsheaders.middleware.CorsMiddleware",
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
    TEMPLATES=[{
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {"loaders": [("django.template.loaders.locmem.Loader", PAGES)]},
    }],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    SECURE_SSL_REDIRECT=True,
    SESSION_COOKIE_SECURE=True,
    SESSION_COOKIE_SAMESITE="None",
    CSRF_COOKIE_SECURE=True,
    CSRF_COOKIE_SAMESITE="None",
    CSRF_TRUSTED_ORIGINS=[os.environ["APP_ORIGIN"]],
    CORS_ALLOWED_ORIGINS=[os.environ["APP_ORIGIN"]],
    CORS_ALLOW_CREDENTIALS=True,
)

from django import forms  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import JsonResponse, StreamingHttpResponse  # noqa: E402
from django.middleware.csrf import get_token  # noqa: E402
from django.shortcuts import redirect, render  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.http import require_GET, require_POST  # noqa: E402


class SignUpForm(forms.Form):
    email = forms.EmailField()


def sign_up(request):
    form = SignUpForm(request.POST or None)
    if form.is_valid():
        request.session["email"] = form.cleaned_data["email"]
        return redirect("welcome")
    return render(request, "signup.html", {"form": form})


@require_GET
def welcome(request):
    return render(request, "welcome.html", {"email": request.session["email"]})


@require_POST
def photo(request):
    file, digest = request.FILES["photo"], hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    return render(request, "done.html", {"text": f"{file.size} bytes: {digest.hexdigest()}"})


@require_GET
def oauth_callback(request):
    code = request.GET["code"]
    return render(request, "done.html", {"text": f"a code of {len(code)} characters"})


@require_GET
def export(request):
    def rows():
        for number in range(12):
            yield f"{number},{request.session['email']}\n"
            time.sleep(0.3)

    return StreamingHttpResponse(rows(), content_type="text/csv", headers={
        "Content-Disposition": 'attachment; filename="export.csv"'})


@require_GET
def events(request):
    def messages():
        for number in range(12):
            yield f"data: {number}\n\n"
            time.sleep(0.3)
        yield "event: end\ndata:\n\n"

    return StreamingHttpResponse(messages(), content_type="text/event-stream", headers={
        "Cache-Control": "no-cache"})


def me(request):
    if request.method == "PUT":
        request.session["name"] = json.loads(request.body)["name"]
    return JsonResponse({"email": request.session["email"], "name": request.session.get("name"),
                         "token": get_token(request)})


urlpatterns = [
    path("signup/", sign_up),
    path("welcome/", welcome, name="welcome"),
    path("photo/", photo),
    path("oauth/callback/", oauth_callback),
    path("export/", export),
    path("events/", events),
    path("api/me", me),
]

application = get_wsgi_application()
