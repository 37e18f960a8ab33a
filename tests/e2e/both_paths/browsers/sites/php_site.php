<?php
// A sign-up site in PHP with PHP's own sessions, behind a proxy that ends TLS.
declare(strict_types=1);

// PHP's own server logs no request that a script answers.
error_log("{$_SERVER["REQUEST_METHOD"]} {$_SERVER["REQUEST_URI"]}");

session_start(["cookie_secure" => true, "cookie_httponly" => true, "cookie_samesite" => "None"]);
$_SESSION["token"] ??= bin2hex(random_bytes(16));

function check_token(): void
{
    $token = $_SERVER["HTTP_X_CSRF_TOKEN"] ?? $_POST["token"] ?? "";
    if (!hash_equals($_SESSION["token"], $token)) {
        http_response_code(403);
        exit("Forbidden");
    }
}

function token_field(): string
{
    return "<input type=hidden name=token value=\"{$_SESSION["token"]}\">";
}

function done(string $text): void
{
    echo "<!doctype html><title>Done</title><p>", htmlspecialchars($text), "</p>";
}

// Sends these parts, with a pause after each, and lets other requests use the session meanwhile.
function stream(callable $part): void
{
    session_write_close();
    ob_end_flush();
    for ($number = 0; $number < 12; $number++) {
        echo $part($number);
        flush();
        usleep(300_000);
    }
}

$path = parse_url($_SERVER["REQUEST_URI"], PHP_URL_PATH);
switch ("{$_SERVER["REQUEST_METHOD"]} $path") {
    case "GET /signup":
        echo "<!doctype html><title>Sign up</title><form id=signup method=post>", token_field(),
            "<input id=email name=email><button>Sign up</button></form>";
        break;
    case "POST /signup":
        check_token();
        session_regenerate_id(true);
        $_SESSION["email"] = $_POST["email"];
        header("Location: /welcome", true, 303);
        break;
    case "GET /welcome":
        echo "<!doctype html><title>Welcome</title><h1>Welcome, ",
            htmlspecialchars($_SESSION["email"]), "</h1><form id=upload method=post ",
            "action=/photo enctype=multipart/form-data>", token_field(),
            "<input id=photo name=photo type=file><button>Upload</button></form>",
            "<a id=export href=/export>Export</a>";
        break;
    case "POST /photo":
        check_token();
        $photo = $_FILES["photo"];
        done("{$photo["size"]} bytes: " . hash_file("sha256", $photo["tmp_name"]));
        break;
    case "GET /oauth/callback":
        done("a code of " . strlen($_GET["code"]) . " characters");
        break;
    case "GET /export":
        header("Content-Type: text/csv");
        header("Content-Disposition: attachment; filename=\"export.csv\"");
        stream(fn (int $number) => "$number,{$_SESSION["email"]}\n");
        break;
    case "GET /events":
        header("Content-Type: text/event-stream");
        stream(fn (int $number) => "data: $number\n\n");
        echo "event: end\ndata:\n\n";
        break;
    case "OPTIONS /api/me":
    case "GET /api/me":
    case "PUT /api/me":
        header("Vary: Origin");
        if (($_SERVER["HTTP_ORIGIN"] ?? "") === getenv("APP_ORIGIN")) {
            header("Access-Control-Allow-Origin: {$_SERVER["HTTP_ORIGIN"]}");
            header("Access-Control-Allow-Credentials: true");
            header("Access-Control-Allow-Methods: GET, PUT");
            header("Access-Control-Allow-Headers: Content-Type, X-CSRF-Token");
        }
        if ($_SERVER["REQUEST_METHOD"] === "OPTIONS") {
            http_response_code(204);
            break;
        }
        if ($_SERVER["REQUEST_METHOD"] === "PUT") {
            check_token();
            $_SESSION["name"] = json_decode(file_get_contents("php://input"))->name;
        }
        header("Content-Type: application/json");
        echo json_encode([
            "email" => $_SESSION["email"], "name" => $_SESSION["name"] ?? null,
            "token" => $_SESSION["token"],
        ]);
        break;
    default:
        http_response_code(404);
}
