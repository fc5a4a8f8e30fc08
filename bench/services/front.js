// SPDX-License-Identifier: Apache-2.0 OR MIT
// Asks another service, then works itself: node front.js ADDRESS PORT BACK_ADDRESS BACK_PORT
const http = require('http');
const crypto = require('crypto');

const ROUNDS = 500;
const agent = new http.Agent({ keepAlive: true });
const back = { host: process.argv[4], port: +process.argv[5], agent };

// One that fails is one request's failure; without a handler it would be the end of the process.
function ask(then, fail) {
  const asked = http.get(back, (answer) => {
    let text = '';
    answer.on('data', (part) => (text += part));
    answer.on('end', () => then(text));
    answer.on('error', fail);
  });
  asked.on('error', fail);
}

function work(text) {
  for (let i = 0; i < ROUNDS; i++) text = crypto.createHash('sha256').update(text).digest('hex');
  return text;
}

function serve(request, response) {
  ask(
    (text) => response.end(work(text)),
    (error) => response.writeHead(502).end(`${error}\n`)
  );
}

http.createServer(serve).listen(+process.argv[3], process.argv[2]);
