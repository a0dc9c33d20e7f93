package exitcode

import (
	"os"

	"waldo/internal/sandbox"
)

// inside is the hint of a command that fails in a session of waldo launch.
const inside = "this is inside a waldo session, where no sandbox starts and nothing is trusted or answered: run " +
	"waldo outside of it; an agent calls the tools of its MCP server waldo"

// SessionAt is the folder of a session of waldo launch, which only its sandbox has.
const SessionAt = "/waldo/session"

// Within adds to the error of a command that it ran in a session of waldo launch. Other errors are returned as they are.
func Within(err error) error {
	if err == nil {
		return nil
	}
	name, _ := os.Hostname() // without a name it is no session
	if st, no := os.Stat(SessionAt); no != nil || !st.IsDir() || name != sandbox.Hostname {
		return err
	}
	e := Exit{Code: Failed, Err: err}
	if of := Of(err); of != nil {
		e = *of
	}
	if e.Code == Cancelled {
		return err
	}
	if e.Hint != "" {
		e.Hint = inside + "\n" + e.Hint
	} else {
		e.Hint = inside
	}
	return &e
}
