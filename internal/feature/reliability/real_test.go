//go:build unix

package reliability

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/testing/repo"
)

// between stands between waldo and a server, and ends once, before or after the server has answered the call of a tool.
func between(at, tool, marker string, command []string) {
	c := exec.Command(command[0], command[1:]...)
	in, err := c.StdinPipe()
	if err != nil {
		os.Exit(1)
	}
	out, err := c.StdoutPipe()
	if err != nil || c.Start() != nil {
		os.Exit(1)
	}
	answers := bufio.NewScanner(out)
	answers.Buffer(nil, 1<<22)
	ends := make(chan string, 1)
	go func() {
		for answers.Scan() {
			select {
			case id := <-ends:
				if strings.Contains(answers.Text(), `"id":`+id) {
					_ = c.Process.Kill()
					os.Exit(1)
				}
				ends <- id
			default:
			}
			fmt.Println(answers.Text())
		}
		os.Exit(1)
	}()
	asked := bufio.NewScanner(os.Stdin)
	asked.Buffer(nil, 1<<22)
	for asked.Scan() {
		var m struct {
			ID     json.RawMessage
			Params struct{ Name string }
		}
		_ = json.Unmarshal(asked.Bytes(), &m)
		if _, err := os.Stat(marker); m.Params.Name == tool && err != nil {
			_ = os.WriteFile(marker, nil, 0o600)
			if at == "before" {
				_ = c.Process.Kill()
				os.Exit(1)
			}
			ends <- string(m.ID)
		}
		_, _ = fmt.Fprintln(in, asked.Text())
	}
	_ = in.Close()
	_ = c.Wait()
}

// Writes of real servers are settled by reads of theirs, after the server died before or after the write.
func TestSettleRealServers(t *testing.T) {
	node, packages := repo.Packages(t, "npm", "@modelcontextprotocol/server-memory", "@modelcontextprotocol/server-filesystem")
	for _, row := range []struct{ server, write, read, settle, args string }{
		{"memory", "create_entities", "search_nodes",
			`args: {query: "args.entities[0].name"}, happened: "result.entities.exists(e, e.name == args.entities[0].name)"`,
			`{"entities":[{"name":"Ada","entityType":"person","observations":["counts"]}]}`},
		{"filesystem", "create_directory", "list_directory",
			`args: {path: "'FOLDER'"}, happened: "text.contains('[DIR] notes')"`, `{"path":"FOLDER/notes"}`},
	} {
		for at, want := range map[string]call.Settled{"before": call.NotHappened, "after": call.Happened} {
			t.Run(row.server+" "+at, func(t *testing.T) {
				b := newBench(t, "")
				files := filepath.Join(b.dir, "files")
				if err := os.Mkdir(files, 0o700); err != nil {
					t.Fatal(err)
				}
				me, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				command, err := json.Marshal([]string{me, "between", at, row.write, filepath.Join(b.dir, "marker"), node,
					filepath.Join(packages, "@modelcontextprotocol", "server-"+row.server, "dist", "index.js"), files})
				if err != nil {
					t.Fatal(err)
				}
				text := fmt.Sprintf(`version: 1
servers:
  r: {command: %s, placement: outside, env: {MEMORY_FILE_PATH: FOLDER/memory.json}}
capabilities:
  r.%s: {mode: read, approval: none}
  r.%s: {mode: write, approval: none, settle: {by: r.%s, %s, within: 1s}}
`, command, row.read, row.write, row.read, row.settle)
				text = strings.ReplaceAll(text, "FOLDER", files)
				if err := os.WriteFile(filepath.Join(b.dir, "waldo.yaml"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				var args map[string]any
				if err := json.Unmarshal([]byte(strings.ReplaceAll(row.args, "FOLDER", files)), &args); err != nil {
					t.Fatal(err)
				}
				h := b.waldo(t)
				o := ordered{Capability: "r." + row.write, Key: "k", Args: args}
				r := o.must(t, h)
				if r.Settled != want || r.Status == facts.OK {
					t.Fatalf("settled %q, want %q: %s%s", r.Settled, want, r.Status, codes(r))
				}
				r = o.must(t, h)
				if r.Status != facts.OK || (r.Replayed != "") != (want == call.Happened) {
					t.Errorf("the same call again: %s, replay of %q%s", r.Status, r.Replayed, codes(r))
				}
			})
		}
	}
}
