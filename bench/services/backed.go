// SPDX-License-Identifier: Apache-2.0 OR MIT
// Asks redis over one of four connections that it keeps: backed ADDRESS:PORT ADDRESS:PORT-OF-REDIS
package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
)

const script = "local s = 0 for i = 1, 40000 do s = s + i end return s"

func work(rounds int) [32]byte {
	sum := sha256.Sum256([]byte{1})
	for i := 0; i < rounds; i++ {
		sum = sha256.Sum256(sum[:])
	}
	return sum
}

func main() {
	free := make(chan *bufio.ReadWriter, 4)
	for i := 0; i < cap(free); i++ {
		redis, err := net.Dial("tcp", os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		free <- bufio.NewReadWriter(bufio.NewReader(redis), bufio.NewWriter(redis))
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		work(4000)
		redis := <-free
		fmt.Fprintf(redis, "EVAL \"%s\" 0\r\n", script)
		redis.Flush()
		answer, err := redis.ReadString('\n')
		free <- redis
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, "%x %s", work(2000), answer)
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(os.Args[1], nil))
	os.Exit(1)
}
