// SPDX-License-Identifier: Apache-2.0 OR MIT
// Three event loops whose parent takes the connections; one request in twenty takes seven times as long: node cluster.js ADDRESS PORT
const cluster = require('cluster'), http = require('http'), crypto = require('crypto');

function work(rounds) {
  let text = Buffer.alloc(1024);
  for (let i = 0; i < rounds; i++) text = crypto.createHash('sha256').update(text).digest();
  return text.toString('hex');
}

if (cluster.isPrimary) {
  for (let i = 0; i < 3; i++) cluster.fork();
} else {
  const server = http.createServer({ keepAliveTimeout: 0 }, (request, response) => {
    work(Math.random() < 0.05 ? 3000 : 400);
    // In two turns of its loop.
    setImmediate(() => response.end(work(100)));
  });
  server.listen(+process.argv[3], process.argv[2]);
}
