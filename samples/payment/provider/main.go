// Command provider is the outside service, at PAYMENT_ADDR.
package main

import (
	"log"
	"net/http"
	"os"
	"time"

	"github.com/effectonce/effectonce/samples/payment"
)

func main() {
	p := &payment.Provider{Charged: func() { log.Println("a card was charged") }}
	server := &http.Server{Addr: os.Getenv("PAYMENT_ADDR"), Handler: p, ReadHeaderTimeout: 5 * time.Second}
	if err := server.ListenAndServe(); err != nil {
		log.Fatalln("Unable to serve:", err)
	}
}
