package files

import (
	"path/filepath"
	"slices"
	"strings"
)

// fetchers are the programs that fetch what they run, and the words that make them do so; none: they always do.
var fetchers = map[string][]string{
	"npx": nil, "bunx": nil, "pnpx": nil, "uvx": nil, "dnx": nil,
	"npm":  {"exec", "x", "init", "create"},
	"pnpm": {"dlx", "create"},
	"yarn": {"dlx", "create"},
	"bun":  {"x", "create"},
	"uv":   {"run", "tool"},
	"pipx": {"run"},
	"go":   {"run"},
	"nix":  {"run", "shell"},
}

// wrappers are programs that start the program in their arguments.
var wrappers = []string{
	"sh", "bash", "dash", "ash", "zsh", "env", "nice", "timeout", "corepack", "stdbuf", "nohup", "xargs", "setsid", "exec",
}

// Fetcher returns the program in a command that fetches its code at each start, or "". behind reports that another
// program of the command starts it.
func Fetcher(command []string) (program string, behind bool) {
	if len(command) == 0 {
		return "", false
	}
	first := filepath.Base(command[0])
	if fetching(first, command[1:]) {
		return first, false
	}
	if slices.Contains(wrappers, first) {
		words := strings.Fields(strings.Join(command[1:], " ")) // also those of sh -c
		for i, w := range words {
			if p, _ := Fetcher(append([]string{strings.Trim(w, `"'`)}, words[i+1:]...)); p != "" {
				return p, true
			}
		}
		return "", false
	}
	if !interpreter.MatchString(first) {
		return "", false
	}
	if at := scriptOf(command); at > 0 {
		script := command[at]
		for _, scheme := range []string{"npm:", "jsr:", "http:", "https:"} { // of deno
			if strings.HasPrefix(script, scheme) {
				return first, false
			}
		}
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(script), ".js"), ".py")
		name = strings.TrimSuffix(name, "-cli") // npm-cli.js and npx-cli.js
		if fetching(name, command[at+1:]) {
			return name, true
		}
		return "", false
	}
	if at := slices.Index(command, "-m"); at > 0 && at+1 < len(command) && fetching(command[at+1], command[at+2:]) {
		return command[at+1], true
	}
	return "", false
}

// fetching reports whether a program fetches what it runs, with these words after it.
func fetching(program string, rest []string) bool {
	verbs, known := fetchers[program]
	return known && (verbs == nil ||
		slices.ContainsFunc(rest, func(w string) bool { return slices.Contains(verbs, strings.Trim(w, `"'`)) }))
}
