// SPDX-License-Identifier: Apache-2.0 OR MIT
// Answers over HTTP/2: with a certificate of its own (tls), or in clear text as gRPC's servers do (h2c). Between the halves of its
// work it waits, so that many requests are under way on one connection: streams tls|h2c ADDRESS:PORT MILLISECONDS
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"time"
)

func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	says := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, &says, &says, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}, err
}

func main() {
	wait, err := time.ParseDuration(os.Args[3] + "ms")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	half := func(sum [32]byte) [32]byte {
		for i := 0; i < 5000; i++ {
			sum = sha256.Sum256(sum[:])
		}
		return sum
	}
	work := func(w http.ResponseWriter, r *http.Request) {
		sum := half([32]byte{1})
		time.Sleep(wait)
		fmt.Fprintf(w, "%x\n", half(sum))
	}
	server := http.Server{Addr: os.Args[2], Handler: http.HandlerFunc(work), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	if os.Args[1] == "tls" {
		var own tls.Certificate
		if own, err = certificate(); err == nil {
			server.Protocols.SetHTTP2(true)
			server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{own}}
			err = server.ListenAndServeTLS("", "")
		}
	} else {
		server.Protocols.SetUnencryptedHTTP2(true)
		err = server.ListenAndServe()
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
