package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"waldo/internal/testing/providertest"
)

// serveModel starts a scripted model: model FILE NAME CONFIG. FILE is a JSON list of turns, by the number of the answers
// before. The script's variable NAME is the server's address, NAME in CONFIG is replaced by it, and the requests
// are written to NAME.log, a line each.
func serveModel(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: model FILE NAME CONFIG")
	}
	var turns []providertest.Turn
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &turns); err != nil {
		ts.Fatalf("%s: %v", args[0], err)
	}
	log, err := os.Create(ts.MkAbs(args[1] + ".log"))
	if err != nil {
		ts.Fatalf("%v", err)
	}
	s := &providertest.Server{Chunk: 11, Script: func(a providertest.Ask) providertest.Turn {
		said := append([]string{}, a.Said...)
		for _, r := range a.Results {
			said = append(said, r.Text)
		}
		fmt.Fprintf(log, "%s key=%s tools=%v %q\n", a.Kind, a.Key, a.Tools, said)
		if a.Answers >= len(turns) {
			return providertest.Turn{Text: "there is no more", Hold: time.Second}
		}
		return turns[a.Answers]
	}}
	web := httptest.NewServer(s)
	ts.Defer(func() {
		web.CloseClientConnections()
		web.Close()
		log.Close()
	})
	ts.Setenv(args[1], web.URL)
	file := ts.MkAbs(args[2])
	text := strings.ReplaceAll(ts.ReadFile(file), args[1], web.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		ts.Fatalf("%v", err)
	}
}
