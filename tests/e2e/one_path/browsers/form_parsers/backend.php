<?php
// Reads a form as a backend in PHP does, and prints what it reads: {"php": [VALUE, …]}.
function texts($value) {
    if (is_string($value)) {
        return [$value];
    }
    return is_array($value) ? array_merge([], ...array_map('texts', array_values($value))) : [];
}

function of_form($form) {
    $found = [];
    foreach (['email', 'user_email'] as $name) {
        $found = array_merge($found, texts($form[$name] ?? null));
    }
    $user = $form['user'] ?? null;
    return array_merge($found, is_array($user) ? texts($user['email'] ?? null) : []);
}

$type = strtolower($_SERVER['CONTENT_TYPE'] ?? '');
$is_json = str_starts_with($type, 'application/json');
$body = file_get_contents('php://input');
$form = $is_json ? json_decode($body, true, 512, JSON_INVALID_UTF8_IGNORE) : $_POST;
header('Content-Type: application/json');
echo json_encode(['php' => is_array($form) ? of_form($form) : []], JSON_INVALID_UTF8_SUBSTITUTE);
