package service

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/fault"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/feature"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// Feature is waldo service.
var Feature = feature.Feature{
	Name:     "service",
	Commands: func(g *cli.Context) []*cobra.Command { return []*cobra.Command{newService(g)} },
}

// flags are those of the three commands.
type flags struct {
	system, user, dry, purge bool
	root, listen             string
}

func newService(g *cli.Context) *cobra.Command {
	c := &cobra.Command{
		Use: "service", Short: "Run waldo serve as a service of systemd, started on demand",
		Long: "As root, the service is the machine's: the user waldo, without rights, in a control group apart, with\n" +
			configuration + " and /var/lib/waldo. Otherwise it is yours, with the configuration and state of your commands.",
		Example: "  waldo service install --dry-run      what it would write\n  sudo waldo service install\n  waldo service status",
	}
	var o flags
	c.PersistentFlags().BoolVar(&o.system, "system", false, "the service of the machine (default: where the user is root)")
	c.PersistentFlags().BoolVar(&o.user, "user", false, "the service of this user (default: for all others)")
	c.PersistentFlags().StringVar(&o.root, "root", "", "work on the files below `DIR`, as for an image, and start nothing")
	c.AddCommand(newInstall(g, &o), newUninstall(g, &o), newStatus(g, &o))
	return c
}

// plan reads the flags.
func (o flags) plan(g *cli.Context) (plan, error) {
	if o.system && o.user {
		return plan{}, fault.Usage("one service at a time", "--system and --user exclude each other")
	}
	p := plan{system: o.system || !o.user && os.Geteuid() == 0, root: strings.TrimSuffix(o.root, "/")}
	at := o.listen
	if at == "" {
		at = app.DefaultListen
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil || net.ParseIP(host) == nil || port == "" {
		return plan{}, fault.Usage("an IP address and a port, as in "+app.DefaultListen, "--listen %q is not an address", at)
	}
	p.listen = []string{at}
	if host == "127.0.0.1" { // both addresses of localhost, so that no other user answers at the other one
		p.listen = append(p.listen, net.JoinHostPort("::1", port))
	}
	if p.program, err = os.Executable(); err != nil {
		return plan{}, err
	}
	if p.program, err = filepath.EvalSymlinks(p.program); err != nil {
		return plan{}, err
	}
	if !p.system {
		if p.home, err = os.UserHomeDir(); err != nil {
			return plan{}, err
		}
		for from, to := range map[string]*string{g.Config: &p.config, g.State: &p.state} {
			if from == "" {
				continue
			}
			if *to, err = filepath.Abs(from); err != nil {
				return plan{}, err
			}
		}
	} else if g.Config != "" || g.State != "" {
		return plan{}, fault.Usage("the service of the machine has "+configuration+" and /var/lib/waldo",
			"--config and --state belong to a user's service")
	}
	return p, nil
}

func newInstall(g *cli.Context, o *flags) *cobra.Command {
	c := &cobra.Command{
		Use: "install", Short: "Write the units, and start the socket", Args: cobra.NoArgs,
		Example: "  waldo service install --dry-run\n  sudo waldo service install --listen 127.0.0.1:7000",
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := o.plan(g)
			if err != nil {
				return err
			}
			if o.dry {
				if err := p.trusted(); err != nil {
					display.Fprintf(c.ErrOrStderr(), "warning: waldo service install would refuse this program: %v\n", err)
				}
				return show(c, g, p)
			}
			if p.root == "" && !running() {
				return fault.Usage("--dry-run shows the units; --root writes them below a folder",
					"systemd does not run this machine")
			}
			if err := explain(p.install()); err != nil {
				return err
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), p.look())
			}
			for _, f := range p.files() {
				display.Fprintf(c.OutOrStdout(), "wrote %s\n", f.Path)
			}
			display.Fprintf(c.OutOrStdout(), "%s\n", p.then())
			return nil
		},
	}
	c.Flags().BoolVar(&o.dry, "dry-run", false, "print the files and the commands, and do nothing")
	c.Flags().StringVar(&o.listen, "listen", "", "`ADDRESS` of the socket (default: "+app.DefaultListen+")")
	return c
}

// then describes when waldo starts, now that the units are written.
func (p plan) then() string {
	starts := "waldo starts with the first connection to " + strings.Join(p.listen, " and ")
	switch {
	case p.root != "":
		return "nothing was started: on that system, systemctl enable --now waldo.socket"
	case !p.system:
		return starts + ", while you are logged in\nhint: loginctl enable-linger keeps it without a login"
	}
	return starts
}

// explain adds what to do about a file or a program that is in the way.
func explain(err error) error {
	var f foreign
	switch {
	case errors.As(err, &f):
		return fault.Usage("move it aside, and call this again", "%v", err)
	case errors.Is(err, errWritable):
		return fault.Usage("install it into /usr/bin: the package, or make install as root", "%v", err)
	}
	return err
}

// show prints what install would do.
func show(c *cobra.Command, g *cli.Context, p plan) error {
	if g.JSON {
		commands := p.commands()
		if commands == nil {
			commands = [][]string{}
		}
		return terminal.JSON(c.OutOrStdout(), map[string]any{"files": p.files(), "commands": commands})
	}
	for _, f := range p.files() {
		kept := ""
		if f.keep {
			kept = " (where there is none)"
		}
		display.Fprintf(c.OutOrStdout(), "# %s%s\n", f.Path, kept)
		for line := range strings.Lines(f.Content) {
			display.Fprintf(c.OutOrStdout(), "%s\n", strings.TrimSuffix(line, "\n"))
		}
		display.Fprintf(c.OutOrStdout(), "\n")
	}
	for _, run := range p.commands() {
		display.Fprintf(c.OutOrStdout(), "$ %s\n", strings.Join(run, " "))
	}
	return nil
}

func newUninstall(g *cli.Context, o *flags) *cobra.Command {
	c := &cobra.Command{
		Use: "uninstall", Short: "Stop the service, and remove its units", Args: cobra.NoArgs,
		Long:    "The configuration, the state with its log, and the user waldo stay. --purge removes them, too.",
		Example: "  sudo waldo service uninstall",
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := o.plan(g)
			if err != nil {
				return err
			}
			removed, err := p.uninstall(o.purge)
			if err = explain(err); err != nil {
				return err
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), map[string]any{"removed": append([]string{}, removed...)})
			}
			for _, path := range removed {
				display.Fprintf(c.OutOrStdout(), "removed %s\n", path)
			}
			if len(removed) == 0 {
				display.Fprintf(c.OutOrStdout(), "there is no service\n")
			}
			return nil
		},
	}
	c.Flags().BoolVar(&o.purge, "purge", false, "remove /etc/waldo, /var/lib/waldo with the log, and the user waldo, too")
	return c
}

func newStatus(g *cli.Context, o *flags) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Say whether the service is installed and runs", Args: cobra.NoArgs,
		Long:    "The exit code is 1 where it is not installed, differs from what this waldo writes, or its socket is not active.",
		Example: "  waldo service status --json",
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := o.plan(g)
			if err != nil {
				return err
			}
			s := p.look()
			if g.JSON {
				if err := terminal.JSON(c.OutOrStdout(), s); err != nil {
					return err
				}
			} else {
				display.Fprintf(c.OutOrStdout(), "installed %v\nsocket    %s %s\nservice   %s\n", s.Installed, s.Socket,
					strings.Join(s.Listen, " "), s.Service)
				for _, path := range s.Changed {
					display.Fprintf(c.OutOrStdout(), "changed   %s\n", path)
				}
			}
			if s.Installed && len(s.Changed) == 0 && (s.Socket == "active" || p.root != "") {
				return nil
			}
			if !s.Installed {
				return &exitcode.Exit{Code: exitcode.Problems, Text: "the service is not installed", Hint: "waldo service install"}
			}
			return &exitcode.Exit{Code: exitcode.Problems, Text: "the service is not as waldo service install makes it",
				Hint: "waldo service install --dry-run shows what it should be; systemctl status waldo.socket says more"}
		},
	}
}
