package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"waldo/internal/app/fault"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/cli/records"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/feature"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// Feature is waldo backup and waldo restore.
var Feature = feature.Feature{
	Name: "backup",
	Commands: func(c *cli.Context) []*cobra.Command {
		return []*cobra.Command{newBackup(c), newRestore(c)}
	},
}

// passphraseVariable holds the passphrase of backups where no person is asked.
const passphraseVariable = "WALDO_BACKUP_PASSPHRASE"

func passphrase(what string) (string, error) {
	if p := os.Getenv(passphraseVariable); p != "" {
		return p, nil
	}
	ask := cli.Passphrase()
	if ask == nil {
		return "", fault.Usage("set "+passphraseVariable+", or name a key", "a backup is sealed, and no person can be asked for a passphrase")
	}
	v, err := ask(what)
	return v.Reveal(), err
}

func newBackup(g *cli.Context) *cobra.Command {
	var o Options
	var to string
	c := &cobra.Command{
		Use: "backup FILE", Short: "Copy the state directory while waldo runs, sealed", Args: cobra.ExactArgs(1),
		Long: "Writes the database, the log, the pins and the data of servers into one sealed file (age).\n" +
			"It holds no secrets and no files of sessions unless they are asked for. waldo.yaml is not part of it.\n" +
			"It is sealed for --to, or by the passphrase in $" + passphraseVariable + " or typed at the terminal.",
		Example: "  waldo backup --to age1… waldo-2026-11-24.backup\n  waldo backup --workspaces waldo.backup",
		RunE: func(c *cobra.Command, args []string) error {
			s, err := g.OpenStorage()
			if err != nil {
				return err
			}
			defer s.Close()
			seal, err := recipient(to)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return fault.Usage("name a new file", "%v", err)
			}
			if err = errors.Join(Write(c.Context(), f, s.Store, o, seal), f.Sync(), f.Close()); err != nil {
				return errors.Join(err, os.Remove(args[0]))
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), map[string]any{"file": args[0], "secrets": o.Secrets, "workspaces": o.Workspaces})
			}
			display.Fprintf(c.OutOrStdout(), "%s holds the state of %s\n", args[0], s.Store.Dir())
			return nil
		},
	}
	c.Flags().BoolVar(&o.Workspaces, "workspaces", false, "copy the files of sessions, too")
	c.Flags().BoolVar(&o.Secrets, "secrets", false, "copy the sealed secrets and approvers' keys, too")
	c.Flags().StringVar(&to, "to", "", "seal for the `RECIPIENT`, as in age1…")
	return c
}

func recipient(to string) (age.Recipient, error) {
	if to != "" {
		r, err := age.ParseX25519Recipient(to)
		if err != nil {
			return nil, fault.Usage("age-keygen makes one, as in age1…", "--to %s is no recipient", to)
		}
		return r, nil
	}
	p, err := passphrase("the new backup")
	if err != nil {
		return nil, err
	}
	if len(p) < approval.MinPassphrase { // who has the file can try passphrases for ever
		return nil, fault.Usage("take several random words, or seal for a key with --to",
			"the passphrase of a backup must have at least %d bytes", approval.MinPassphrase)
	}
	return age.NewScryptRecipient(p)
}

func newRestore(g *cli.Context) *cobra.Command {
	var key string
	c := &cobra.Command{
		Use: "restore FILE", Short: "Unpack a backup into an empty state directory, and verify its log", Args: cobra.ExactArgs(1),
		Long: "The state directory (--state) must be empty. The log is verified as waldo log verify does, also against\n" +
			"$WALDO_LOG_HEAD and the witnesses: a state that is older than a head that they know is said to be, and exits 1.\n" +
			"Records of after the backup are not in it: calls since then may be made again.",
		Example: "  waldo restore --state /var/lib/waldo waldo.backup\n  waldo restore --identity key.txt waldo.backup",
		RunE: func(c *cobra.Command, args []string) error {
			state, err := g.StateDir()
			if err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return fault.Usage("name a backup", "%v", err)
			}
			defer f.Close()
			if err = open(c.Context(), f, state, key); errors.Is(err, ErrInUse) {
				return fault.Usage("move it aside, or name another with --state", "%s: %v", state, err)
			} else if wrong := (*age.NoIdentityMatchError)(nil); errors.As(err, &wrong) {
				return fault.Usage("nothing was restored; run it again", "the key or passphrase does not open %s", args[0])
			} else if errors.Is(err, ErrDamaged) || errors.Is(err, ErrUnlisted) {
				return &exitcode.Exit{Code: exitcode.Problems, Text: args[0], Err: err,
					Hint: "nothing was restored; copy the file again, or use another backup"}
			} else if err != nil {
				return err
			}
			report, err := g.Verify(c.Context(), nil, false)
			if err != nil { // it was empty before
				return errors.Join(fmt.Errorf("nothing was restored: %w", err), os.RemoveAll(state))
			}
			return tell(c, g, filepath.Base(args[0]), state, report)
		},
	}
	c.Flags().StringVar(&key, "identity", "", "the `FILE` with the key of age that opens the backup")
	return c
}

// tries is how often a person can type the passphrase of a backup.
const tries = 3

// open restores a backup with the key in a file or a passphrase.
func open(ctx context.Context, f *os.File, state, key string) error {
	for n := 1; ; n++ {
		by, err := identity(key)
		if err != nil {
			return err
		}
		err = Restore(ctx, f, state, by)
		wrong := (*age.NoIdentityMatchError)(nil)
		if !errors.As(err, &wrong) || n == tries || key != "" || os.Getenv(passphraseVariable) != "" {
			return err
		}
		display.Fprintf(os.Stderr, "this is not the passphrase of the backup; type it again\n")
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

func identity(file string) (age.Identity, error) {
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fault.Usage("age-keygen writes one", "%v", err)
		}
		defer f.Close()
		all, err := age.ParseIdentities(f)
		if err != nil || len(all) == 0 {
			return nil, fault.Usage("age-keygen writes one", "%s holds no key of age", file)
		}
		return all[0], nil
	}
	p, err := passphrase("the backup")
	if err != nil {
		return nil, err
	}
	id, err := age.NewScryptIdentity(p)
	if err != nil {
		return nil, fault.Usage("type the passphrase of the backup, or name a key with --identity", "the passphrase is empty")
	}
	id.SetMaxWorkFactor(maxWork)
	return id, nil
}

// maxWork bounds the work on a passphrase, as the exponent of scrypt's N. A file of another's making must not keep
// waldo busy for minutes. Backups have 18.
const maxWork = 20

// tell shows what was restored. The exit code is that of waldo log verify.
func tell(c *cobra.Command, g *cli.Context, file, state string, r audit.Report) error {
	if g.JSON {
		if err := terminal.JSON(c.OutOrStdout(), map[string]any{"file": file, "state": state, "log": r}); err != nil {
			return err
		}
	} else {
		display.Fprintf(c.OutOrStdout(), "%s was restored into %s\n", file, state)
		records.Verified(c.OutOrStdout(), r)
	}
	if !r.OK {
		return &exitcode.Exit{Code: exitcode.Problems, Text: "the restored state is not the latest, or its log is not sound",
			Hint: "look for a later backup; waldo log set-aside begins a new log that says so"}
	}
	return nil
}
