package terminal

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"waldo/internal/model/display"
	"waldo/internal/model/secret"
)

// AskOnce asks at the terminal for the passphrase of a sealed file, once for each.
func AskOnce() func(string) (secret.Value, error) {
	var mu sync.Mutex
	said := map[string]secret.Value{}
	return func(what string) (secret.Value, error) {
		mu.Lock()
		defer mu.Unlock()
		if v, ok := said[what]; ok {
			return v, nil
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		b, err := ReadPassword(ctx, os.Stdin, func() { display.Fprintf(os.Stderr, "passphrase of %s: ", what) })
		display.Fprintf(os.Stderr, "\n")
		if err != nil {
			return secret.Value{}, err
		}
		said[what] = secret.NewValue(string(b))
		return said[what], nil
	}
}
