// SPDX-License-Identifier: Apache-2.0 OR MIT
// Answers requests in one event loop, and leaves garbage to its collector: node loop.js ADDRESS PORT
const http = require('http');

const ROWS = 1200;

function work() {
  const rows = [];
  for (let i = 0; i < ROWS; i++) rows.push({ id: i, name: 'row ' + i, parts: [i, i * 7, i * 31] });
  const read = JSON.parse(JSON.stringify(rows));
  return read.reduce((sum, row) => (sum + row.parts[2]) | 0, 0) + '\n';
}

// A connection that has been idle is not closed: the front may ask again just then, and that request would be lost.
const server = http.createServer({ keepAliveTimeout: 0 }, (request, response) => response.end(work()));
server.listen(+process.argv[3], process.argv[2]);
