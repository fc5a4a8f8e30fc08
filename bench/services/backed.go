// SPDX-License-Identifier: Apache-2.0 OR MIT
// Asks redis over one of so many connections that it keeps, for work or for what comes after a while:
// backed ADDRESS:PORT ADDRESS:PORT-OF-REDIS [CONNECTIONS WAIT-IN-SECONDS]
package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
)

const sums = "EVAL \"local s = 0 for i = 1, 40000 do s = s + i end return s\" 0"

func work(rounds int) [32]byte {
	sum := sha256.Sum256([]byte{1})
	for i := 0; i < rounds; i++ {
		sum = sha256.Sum256(sum[:])
	}
	return sum
}

func main() {
	connections, question := 4, sums
	if len(os.Args) > 4 {
		connections, _ = strconv.Atoi(os.Args[3])
		question = "BLPOP nothing " + os.Args[4]
	}
	free := make(chan *bufio.ReadWriter, connections)
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
		fmt.Fprintf(redis, "%s\r\n", question)
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
