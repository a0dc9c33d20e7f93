package health

import (
	"os"
	"strconv"
	"strings"
)

// Standing states in one sentence how far waldo's files are from the agent: waldo has a user of its own, or the agent
// runs as the same user. An agent of which waldo knows nothing counts as the latter.
func Standing() string {
	accounts, err := os.ReadFile("/etc/passwd")
	if err != nil {
		accounts = nil // then it is not known, and the weaker sentence is said
	}
	return standing(os.Getuid(), string(accounts))
}

func standing(uid int, accounts string) string {
	if ofItsOwn(uid, accounts) {
		return "waldo has a user of its own: an agent of another user cannot write waldo's files"
	}
	return "your agent runs as you: approvals stop its mistakes, not an agent that attacks waldo's files"
}

// ofItsOwn reports whether a user is an account in which no person works: not root, and without a login shell.
func ofItsOwn(uid int, accounts string) bool {
	for line := range strings.Lines(accounts) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) == 7 && f[2] == strconv.Itoa(uid) {
			return uid > 0 && (strings.HasSuffix(f[6], "/nologin") || strings.HasSuffix(f[6], "/false"))
		}
	}
	return false
}
