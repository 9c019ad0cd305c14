package heedtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/heedhttp/heed/heedtest"
)

// A client under test talks to an origin that allows three requests an hour.
func Example() {
	origin := heedtest.NewOrigin(heedtest.Config{
		Policies: []heedtest.Policy{{Name: "hourly", Quota: 3, Window: time.Hour}},
	})
	client := &http.Client{Transport: origin}

	for range 4 {
		resp, err := client.Get("https://api.example.com/things")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("RateLimit"))
	}
	tally := origin.Tally()
	fmt.Println(tally.Accepted, "accepted,", tally.Refused, "refused, at most", tally.PeakInWindow, "in an hour")
	// Output:
	// 200 "hourly";r=2;t=3600
	// 200 "hourly";r=1;t=3600
	// 200 "hourly";r=0;t=3600
	// 429 "hourly";r=0;t=3600
	// 3 accepted, 1 refused, at most 3 in an hour
}

// Behind a real server, with the answers of a handler of one's own.
func ExampleOrigin_ServeHTTP() {
	server := httptest.NewServer(heedtest.NewOrigin(heedtest.Config{
		Dialect:  heedtest.GitHub,
		Policies: []heedtest.Policy{{Name: "core", Quota: 5000, Window: time.Hour}},
		Key:      heedtest.ByAuthorization,
		Respond: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusCreated)
		},
	}))
	defer server.Close()

	resp, err := http.Post(server.URL+"/repos", "application/json", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	fmt.Println(resp.Header.Get("X-RateLimit-Remaining"), "of", resp.Header.Get("X-RateLimit-Limit"), "left")
	// Output:
	// 201 Created
	// 4999 of 5000 left
}

// Another client uses up the quota that the one under test relies on.
func ExampleOrigin_Take() {
	origin := heedtest.NewOrigin(heedtest.Config{
		Algorithm: heedtest.SlidingWindow,
		Policies:  []heedtest.Policy{{Quota: 10, Window: time.Minute}},
	})
	fmt.Println(origin.Take(8), origin.Take(8), origin.Take(2))
	fmt.Println(origin.WouldAccept("", time.Now()))
	// Output:
	// true false true
	// false
}
