<?php
// SPDX-License-Identifier: Apache-2.0 OR MIT
// Three processes that take a connection for each request, and say by closing it where an answer ends; one request in twenty takes ten
// times as long: PHP_CLI_SERVER_WORKERS=3 php -S ADDRESS:PORT -t DIRECTORY
$text = str_repeat('x', 1024);
$rounds = rand(1, 20) == 1 ? 5000 : 500;
for ($i = 0; $i < $rounds; $i++) $text = str_repeat(hash('sha256', $text, true), 32);
echo bin2hex(substr($text, 0, 8));
