package redisheed_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/redisheed"
	"github.com/redis/go-redis/v9"
)

// Twenty workers on five machines share one API key: each process has a
// registry with a ledger on the same Redis.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "redis.internal:6379"})
	ledger := redisheed.New(client, redisheed.Options{OnOutage: redisheed.GoAlone})
	defer ledger.Close()
	registry, err := heed.NewRegistry(heed.Config{
		Ledger: ledger,
		Origins: map[string]heed.Limits{
			"https://api.example.org": {Policies: []heed.Policy{{Name: "plan", Quota: 100, Window: time.Minute}}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()
	api := (&heed.Transport{Registry: registry}).Client()
	resp, err := api.Get("https://api.example.org/items")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode == http.StatusOK)
}

// A limit on something that is no HTTP request.
func ExampleLedger_Limit() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ledger := redisheed.New(client, redisheed.Options{})
	defer ledger.Close()

	mails := ledger.Limit("mails:alice", heed.Policy{Name: "hourly", Quota: 2, Window: time.Hour})
	ctx := heed.NoWait(context.Background())
	for range 3 {
		left, err := mails.Acquire(ctx)
		var limited *heed.LimitError
		if errors.As(err, &limited) {
			fmt.Println(limited.Origin, "has to wait:", limited.Wait > 59*time.Minute)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(left, "left")
	}
	// Output:
	// 1 left
	// 0 left
	// mails:alice has to wait: true
}
