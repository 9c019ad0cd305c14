package heed_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/ontime"
)

// These tests run heed against servers that were written by others, over
// loopback and on the wall clock. They are skipped with -short, and where a
// server is not installed; in CI that is a failure.

const (
	realServerTime       = 20 * time.Second
	realServerGoroutines = 16
)

func TestExpressRateLimit(t *testing.T) {
	onTheWallClock(t)
	node, npm := installed(t, "node"), installed(t, "npm")
	t.Parallel()
	dir := expressOrigins(t, npm)
	ontime.Try(t, func() (wrong error) {
		server := exec.Command(node, "server.js")
		server.Dir = dir
		stdin, out := startServer(t, server)
		var urls map[string]string
		readJSONLine(t, out, &urls)

		var busy sync.WaitGroup
		for _, url := range urls {
			busy.Go(func() { askForAWhile(t, url) })
		}
		busy.Wait()
		stdin.Close() // it now prints what it counted, and exits
		var counts map[string]struct{ Accepted, Refused int }
		readJSONLine(t, out, &counts)

		const admissible = 200 // 50 per 5 s
		for draft := range urls {
			c := counts[draft]
			t.Logf("%s: %d accepted, %d refused", draft, c.Accepted, c.Refused)
			if c.Refused != 0 || c.Accepted < admissible*98/100 || c.Accepted > admissible {
				wrong = errors.Join(wrong, fmt.Errorf("%s: %d accepted and %d refused, want at least %d of %d and none",
					draft, c.Accepted, c.Refused, admissible*98/100, admissible))
			}
		}
		return wrong
	})
}

func TestNginxLimitReq(t *testing.T) {
	onTheWallClock(t)
	nginx := installed(t, "nginx")
	t.Parallel()
	ontime.Try(t, func() error {
		const admissible = 250 // 10 per second, and 50 to begin with
		const most = 5         // what was in flight when the first refusal came, and what finding the rate cost
		accepted, refused := askNginx(t, nginx)
		t.Logf("%d accepted, %d refused", accepted, refused)
		if refused > most || accepted < admissible*90/100 {
			return fmt.Errorf("%d accepted and %d refused, want at least %d of %d and at most %d", accepted, refused, admissible*90/100, admissible, most)
		}
		return nil
	})
}

// askNginx returns how many requests an nginx of its own has accepted and
// refused.
func askNginx(t *testing.T, nginx string) (accepted, refused int) {
	t.Helper()
	dir := t.TempDir()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	socket, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "html", "index.html"), "ok")
	writeFile(t, filepath.Join(dir, "nginx.conf"), strings.ReplaceAll(nginxConf, "ADDRESS", address))

	server := exec.Command("sh", "-c", untilStdinEnds, "sh", nginx, "-p", dir, "-c", "nginx.conf", "-e", "error.log")
	// nginx is handed the listening socket, as an older nginx hands it to a newer one: a port that is
	// free now may be another test's before nginx has it.
	server.ExtraFiles = []*os.File{socket}
	server.Env = append(os.Environ(), "NGINX=3;")
	stdin, out := startServer(t, server)
	socket.Close()
	listener.Close()                              // nginx alone has it: nobody waits for one that is gone
	awaitFile(t, filepath.Join(dir, "nginx.pid")) // until then an answer takes as long as one from far away
	askForAWhile(t, "http://"+address+"/")
	stdin.Close()
	io.Copy(io.Discard, out) // until it is gone

	log, err := os.ReadFile(filepath.Join(dir, "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	for status := range strings.Lines(string(log)) {
		switch strings.TrimSpace(status) {
		case "200":
			accepted++
		case "429":
			refused++
		default:
			t.Errorf("nginx answered %s", status)
		}
	}
	return accepted, refused
}

// nginxConf limits a static page to 10 requests per second, and says nothing
// about it but 429.
const nginxConf = `
daemon off;
user root; # where the test is root's, so are its files
worker_processes 1;
pid nginx.pid;
error_log error.log;
events {}
http {
	log_format status '$status';
	access_log access.log status;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	limit_req_zone $binary_remote_addr zone=all:1m rate=10r/s;
	server {
		listen ADDRESS;
		root html;
		location / {
			limit_req zone=all burst=50 nodelay;
			limit_req_status 429;
		}
	}
}
`

func onTheWallClock(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skipf("runs for %v of wall-clock time", realServerTime)
	}
}

// installed returns the path of a program the test needs.
func installed(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is needed and not installed", name)
	default:
		t.Skipf("%s is not installed", name)
	}
	return path
}

// askForAWhile has several goroutines ask for a URL through a Transport that was told
// nothing, for as long as a test of a real server runs.
func askForAWhile(t *testing.T, url string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(realServerTime, cancel).Stop()
	client := (&heed.Transport{}).Client()
	var busy sync.WaitGroup
	for range realServerGoroutines {
		busy.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := client.Do(req)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	busy.Wait()
}

// expressOrigins returns a folder with server.js and the packages it needs,
// which npm installs once in the user's cache.
func expressOrigins(t *testing.T, npm string) string {
	t.Helper()
	files := []string{"package.json", "package-lock.json", "server.js"}
	sum := sha256.New()
	contents := make([][]byte, len(files))
	for i, name := range files {
		b, err := os.ReadFile(filepath.Join("testdata", "express", name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(sum, name, len(b))
		sum.Write(b)
		contents[i] = b
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "heed-test")
	dir := filepath.Join(cache, "express-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	unfinished, err := os.MkdirTemp(cache, "unfinished-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(unfinished)
	for i, name := range files {
		writeFile(t, filepath.Join(unfinished, name), string(contents[i]))
	}
	install := exec.CommandContext(t.Context(), npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = unfinished
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	if err := os.Rename(unfinished, dir); err != nil {
		if _, err := os.Stat(dir); err != nil { // nor did anybody else
			t.Fatal(err)
		}
	}
	return dir
}

// startServer starts a server that ends once its standard input does, and returns
// that and its output. The server is gone when the test is over.
func startServer(t *testing.T, server *exec.Cmd) (io.Closer, *bufio.Reader) {
	t.Helper()
	var stderr bytes.Buffer
	server.Stderr = &stderr
	stdin, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		defer time.AfterFunc(10*time.Second, func() { server.Process.Kill() }).Stop()
		if err := server.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", server.Path, err, stderr.Bytes())
		}
	})
	return stdin, bufio.NewReader(stdout)
}

// untilStdinEnds is a script that runs its arguments as a command and stops it
// when the standard input ends: also where this process dies.
const untilStdinEnds = `"$@" </dev/null & cat >/dev/null; kill $!; wait $!`

func readJSONLine(t *testing.T, r *bufio.Reader, v any) {
	t.Helper()
	line, err := r.ReadBytes('\n')
	if err != nil {
		t.Fatalf("the server said %q: %v", line, err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		t.Fatalf("the server said %q: %v", line, err)
	}
}

// awaitFile waits for a file that a server writes once it has begun.
func awaitFile(t *testing.T, name string) {
	t.Helper()
	for range 1000 {
		if _, err := os.Stat(name); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s is not there", name)
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
