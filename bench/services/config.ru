# SPDX-License-Identifier: Apache-2.0 OR MIT
# Answers with a pool of four threads under the interpreter's lock; one request in twenty takes ten times as long:
# puma -t 4:4 -b tcp://ADDRESS:PORT config.ru
require 'digest'

count = 0

run lambda { |_|
  count += 1
  text = 'x' * 1024
  (count % 20 == 0 ? 5000 : 500).times { text = Digest::SHA256.digest(text) * 32 }
  [200, { 'content-type' => 'text/plain' }, [text[0, 8].unpack1('H*')]]
}
