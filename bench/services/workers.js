// SPDX-License-Identifier: Apache-2.0 OR MIT
// One thread that takes requests, and three workers of the same process: node workers.js ADDRESS PORT
const { Worker, isMainThread, parentPort } = require('worker_threads');
const http = require('http');

function work() {
  const rows = [];
  for (let i = 0; i < 800; i++) rows.push({ id: i, name: 'row ' + i, parts: [i, i * 7] });
  return JSON.parse(JSON.stringify(rows)).length;
}

if (isMainThread) {
  const free = Array.from({ length: 3 }, () => new Worker(__filename));
  const waiting = [];
  const give = () => {
    while (free.length && waiting.length) {
      const worker = free.pop(), response = waiting.shift();
      worker.once('message', (count) => {
        free.push(worker);
        response.end(count + '\n');
        give();
      });
      worker.postMessage(null);
    }
  };
  const server = http.createServer({ keepAliveTimeout: 0 }, (request, response) => {
    waiting.push(response);
    give();
  });
  server.listen(+process.argv[3], process.argv[2]);
} else {
  parentPort.on('message', () => parentPort.postMessage(work()));
}
