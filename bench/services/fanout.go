// SPDX-License-Identifier: Apache-2.0 OR MIT
// Answers each request with what four goroutines found, each a quarter of the work: fanout ADDRESS:PORT [ROUNDS]
package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
)

const parts = 4

var rounds = 2500

func work(seed byte) [32]byte {
	sum := sha256.Sum256([]byte{seed})
	for i := 0; i < rounds; i++ {
		sum = sha256.Sum256(sum[:])
	}
	return sum
}

func main() {
	if len(os.Args) > 2 {
		rounds, _ = strconv.Atoi(os.Args[2])
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		var sums [parts][32]byte
		var all sync.WaitGroup
		for i := range sums {
			all.Add(1)
			go func(i int) {
				defer all.Done()
				sums[i] = work(byte(i))
			}(i)
		}
		all.Wait()
		fmt.Fprintf(w, "%x\n", sums[parts-1][:8])
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(os.Args[1], nil))
	os.Exit(1)
}
