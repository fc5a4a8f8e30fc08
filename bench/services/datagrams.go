// SPDX-License-Identifier: Apache-2.0 OR MIT
// A service over UDP, with a goroutine for each datagram as DNS servers have, and its client.
//
//	datagrams serve ADDRESS [WORK_US]            answers after so much work [1500]
//	datagrams ask ADDRESS RATE SECONDS FILE      sends so many a second, each from a port of its own, as resolvers do; 0: as
//	                                             many as are answered, four at a time. FILE gets a line for each: when it was
//	                                             sent, ns since 1970, 200 or 0 where no answer came, how long it took, ns.
//
// An interrupted client ends as if its time were over.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"
)

// Longer than any answer takes.
const patience = 30 * time.Second

func work(long time.Duration) {
	for begin, sum := time.Now(), 0; time.Since(begin) < long; {
		for i := 0; i < 1000; i++ {
			sum += i
		}
		_ = sum
	}
}

func serve(address string, long time.Duration) error {
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	for {
		room := make([]byte, 512)
		bytes, peer, err := socket.ReadFrom(room)
		if err != nil {
			return err
		}
		go func() {
			work(long)
			socket.WriteTo(room[:bytes], peer)
		}()
	}
}

type row struct {
	sent time.Time
	code int
	took time.Duration
}

func askOnce(address string) row {
	socket, err := net.Dial("udp", address)
	if err != nil {
		return row{sent: time.Now()}
	}
	defer socket.Close()
	sent := time.Now()
	socket.SetDeadline(sent.Add(patience))
	_, err = socket.Write([]byte("what?"))
	if err == nil {
		_, err = socket.Read(make([]byte, 512))
	}
	if err != nil {
		return row{sent, 0, time.Since(sent)}
	}
	return row{sent, 200, time.Since(sent)}
}

func ask(address string, rate int, long time.Duration, file string) error {
	var rows []row
	var lock sync.Mutex
	var under sync.WaitGroup
	one := func() {
		row := askOnce(address)
		lock.Lock()
		rows = append(rows, row)
		lock.Unlock()
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	over := make(chan struct{})
	go func() {
		select {
		case <-interrupted:
		case <-time.After(long):
		}
		close(over)
	}()
	isOver := func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	}
	begin := time.Now()
	for i := 0; rate > 0 && !isOver(); i++ {
		select {
		case <-over:
		case <-time.After(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate)))):
			under.Add(1)
			go func() { defer under.Done(); one() }()
		}
	}
	for i := 0; rate == 0 && i < 4; i++ {
		under.Add(1)
		go func() {
			defer under.Done()
			for !isOver() {
				one()
			}
		}()
	}
	under.Wait()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	lines := bufio.NewWriter(out)
	for _, row := range rows {
		fmt.Fprintf(lines, "%d,%d,%d\n", row.sent.UnixNano(), row.code, row.took.Nanoseconds())
	}
	if err := lines.Flush(); err != nil {
		return err
	}
	return out.Close()
}

func number(at, otherwise int) int {
	if at >= len(os.Args) {
		return otherwise
	}
	value, err := strconv.Atoi(os.Args[at])
	if err != nil {
		fmt.Fprintln(os.Stderr, "datagrams:", err)
		os.Exit(2)
	}
	return value
}

func main() {
	var err error
	switch {
	case len(os.Args) >= 3 && os.Args[1] == "serve":
		err = serve(os.Args[2], time.Duration(number(3, 1500))*time.Microsecond)
	case len(os.Args) == 6 && os.Args[1] == "ask":
		err = ask(os.Args[2], number(3, 0), time.Duration(number(4, 0))*time.Second, os.Args[5])
	default:
		fmt.Fprintln(os.Stderr, "usage: datagrams serve ADDRESS [WORK_US] | ask ADDRESS RATE SECONDS FILE")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "datagrams:", err)
		os.Exit(1)
	}
}
