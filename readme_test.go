package heed_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// readmeBlocks returns the README's fenced blocks in a language, dedented.
func readmeBlocks(t *testing.T, language string) []string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	fence := regexp.MustCompile("(?ms)^( *)```" + language + "\n(.*?)^ *```$")
	var blocks []string
	for _, m := range fence.FindAllStringSubmatch(string(readme), -1) {
		lines := strings.Split(m[2], "\n")
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], m[1])
		}
		blocks = append(blocks, strings.Join(lines, "\n"))
	}
	if len(blocks) == 0 {
		t.Fatalf("no %s in the README", language)
	}
	return blocks
}

// readmePackages are those the README's snippets use.
var readmePackages = map[string]string{
	"context": "context", "errors": "errors", "heed": "github.com/heedhttp/heed", "heedtest": "github.com/heedhttp/heed/heedtest", "http": "net/http", "io": "io",
	"log": "log", "redis": "github.com/redis/go-redis/v9", "redisheed": "github.com/heedhttp/heed/redisheed", "strconv": "strconv", "synctest": "testing/synctest",
	"testing": "testing", "time": "time",
}

// readmeProgram makes a snippet something that compiles: it may be a whole file, or
// declarations, or statements, which find a client where they do not make one.
func readmeProgram(snippet string) string {
	if strings.HasPrefix(snippet, "package ") {
		return snippet
	}
	var b strings.Builder
	b.WriteString("package main\n")
	for name, path := range readmePackages {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(snippet) {
			fmt.Fprintf(&b, "import %q\n", path)
		}
	}
	if strings.HasPrefix(snippet, "func ") {
		return b.String() + snippet + "func main() {}\n"
	}
	fmt.Fprintf(&b, "func main() {\n%s\n", snippet)
	if strings.Contains(snippet, "client := ") {
		b.WriteString("_ = client\n}\n")
	} else {
		b.WriteString("}\nvar client *http.Client\n")
	}
	return b.String()
}

func TestReadmeSnippetsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the compiler") // and not beside the tests on the wall clock, which run in parallel
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	args := []string{"build", "-o", filepath.Join(dir, "bin") + string(filepath.Separator), "-overlay", filepath.Join(dir, "overlay.json")}
	for i, snippet := range readmeBlocks(t, "go") {
		file := filepath.Join(dir, fmt.Sprintf("snippet%d.go", i))
		writeFile(t, file, readmeProgram(snippet))
		name := fmt.Sprintf("readme%d", i)
		overlay.Replace[filepath.Join(root, name, "main.go")] = file
		args = append(args, "./"+name)
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "overlay.json"), string(list))
	if out, err := exec.CommandContext(t.Context(), installed(t, "go"), args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestReadmeCommandsAreRunByCI(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	ci := map[string]bool{}
	for line := range strings.Lines(string(script)) {
		ci[strings.TrimSpace(line)] = true
	}
	for _, block := range readmeBlocks(t, "sh") {
		for line := range strings.Lines(block) {
			if !ci[strings.TrimSpace(line)] {
				t.Errorf("the README says to run %q, and .ci/run does not", strings.TrimSpace(line))
			}
		}
	}
}
