package commands

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"waldo/internal/detect/pattern"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
)

// Limits of a command, below those of the kernel.
const (
	maxArguments = 1000
	maxArgument  = 64 << 10 // bytes
	maxAll       = 100 << 10
)

// AnyArguments ends an entry of allow that lets a program have any arguments, as in "python3 *".
const AnyArguments = " *"

// Command is a command that may run.
type Command struct {
	Program string   // as the contract names it
	Argv    []string // as it is run, with the arguments that waldo adds; Argv[0] is Program
	Env     []string
	Dir     string   // where it starts; empty: /workspace
	Danger  int      // 1 or 2; 0: it may not run
	Any     bool     // it may execute and open all that its sandbox shows
	Execute []string // otherwise: programs beside its own, which patterns may name
	Read    []string // otherwise: files and folders beside its libraries, which patterns may name
}

// Judge decides about a command under the allow list of a contract. The zero Command and a reason refuse it.
func Judge(allow, argv []string, stdin bool) (Command, *call.Reason) {
	if len(argv) == 0 || argv[0] == "" {
		return deny("args.invalid", "argv is a program and its arguments")
	}
	all := 0
	for _, a := range argv {
		all += len(a)
		if len(a) > maxArgument || strings.ContainsRune(a, 0) || !utf8.ValidString(a) {
			return deny("args.invalid", "an argument is text without NUL, of at most 64 KiB")
		}
	}
	if len(argv) > maxArguments || all > maxAll {
		return deny("args.invalid", "a command has at most 1,000 arguments and 100 KiB; give long text as stdin")
	}
	name := argv[0]
	if slices.Contains(allow, name+AnyArguments) && !strings.Contains(name, "/") {
		return Command{Program: name, Argv: argv, Danger: 2, Any: true}, nil
	}
	if !slices.Contains(allow, name) {
		return deny("program.denied", fmt.Sprintf("the contract does not allow the program %q; it allows %s", cut(name),
			names(allow)))
	}
	r, rest, why := find(argv)
	if why != nil {
		return Command{}, why
	}
	if err := r.judge(rest, stdin); err != nil {
		return deny("argument.denied", r.name+": "+err.Error())
	}
	c := Command{Program: name, Argv: []string{name}, Danger: r.danger, Any: r.any}
	if whole := table()[name]; whole != r && whole != nil {
		c.Argv, c.Env = append(c.Argv, whole.insert...), append(c.Env, whole.env...)
		c.Execute, c.Read = append(c.Execute, whole.execute...), append(c.Read, whole.read...)
	}
	c.Argv = append(c.Argv, strings.Fields(r.name)[1:]...)
	c.Argv, c.Env = append(append(c.Argv, r.insert...), rest...), append(c.Env, r.env...)
	c.Execute, c.Read = append(c.Execute, r.execute...), append(c.Read, r.read...)
	return c, nil
}

func deny(code, text string) (Command, *call.Reason) {
	return Command{}, &call.Reason{Code: code, Text: text}
}

// cut shortens a word of a command for a message.
func cut(s string) string { return display.Clip(s, 60) }

// names lists the programs of an allow list.
func names(allow []string) string {
	if len(allow) == 0 {
		return "none"
	}
	return strings.Join(allow, ", ")
}

// find returns the rule of a command, and its arguments behind the program or subcommand.
func find(argv []string) (*rule, []string, *call.Reason) {
	t := table()
	for n := min(3, len(argv)); n > 0; n-- {
		if r := t[strings.Join(argv[:n], " ")]; r != nil && r.operands != "" && !strings.Contains(strings.Join(argv[:n], ""), " ") {
			return r, argv[n:], nil
		}
	}
	var subs []string
	for name := range t {
		if sub, ok := strings.CutPrefix(name, argv[0]+" "); ok {
			subs = append(subs, sub)
		}
	}
	if len(subs) > 0 {
		slices.Sort(subs)
		_, why := deny("argument.denied", fmt.Sprintf("%s runs with one of these first: %s", argv[0], strings.Join(subs, ", ")))
		return nil, nil, why
	}
	_, why := deny("program.rule", fmt.Sprintf("waldo has no rule for the arguments of %q; the operator can allow any with %q",
		cut(argv[0]), cut(argv[0])+AnyArguments))
	return nil, nil, why
}

// judge decides about the arguments.
func (r *rule) judge(args []string, stdin bool) error {
	switch r.operands {
	case "words":
		return nil
	case "find":
		return findExpression(args)
	}
	operands, given, err := r.options(args)
	if err != nil {
		return err
	}
	switch {
	case r.most >= 0 && len(operands) > r.most:
		return fmt.Errorf("it takes at most %d operands", r.most)
	case len(operands) < r.least && !(stdin && r.least == 1):
		return fmt.Errorf("it needs a file, or stdin")
	case r.operands == "none" && len(operands) > 0:
		return fmt.Errorf("the operand %q", cut(operands[0]))
	case r.operands == "sed" || r.operands == "pattern":
		return r.program(operands, given)
	}
	for _, o := range operands {
		if err := operand(r.operands, o); err != nil {
			return err
		}
	}
	return nil
}

// options reads the options as getopt_long does, and returns the operands, and the values of options by name.
func (r *rule) options(args []string) (operands []string, given map[string][]string, err error) {
	given = map[string][]string{}
	take := func(option, value string) error {
		given[option] = append(given[option], value)
		if r.paths[option] {
			return operand("path", value)
		}
		return nil
	}
	for i := 0; i < len(args); i++ {
		a := args[i]
		next := func() (string, error) {
			if i++; i >= len(args) {
				return "", fmt.Errorf("the option %s needs a value", a)
			}
			return args[i], nil
		}
		switch {
		case a == "--":
			return append(operands, args[i+1:]...), given, nil
		case a == "-" || !strings.HasPrefix(a, "-"):
			operands = append(operands, a)
		case r.number && number().MatchString(a):
		case strings.HasPrefix(a, "--") || r.single:
			name, value, has := strings.Cut(a, "=")
			switch {
			case r.flags[a] || r.optional[a]:
				given[a] = append(given[a], "")
				continue
			case has && r.optional[name]:
			case has && (r.values[name] || r.paths[name]):
				err = take(name, value)
			case !has && (r.values[name] || r.paths[name]):
				if value, err = next(); err == nil {
					err = take(name, value)
				}
			default:
				err = fmt.Errorf("the option %q is not allowed", cut(name))
			}
		default:
			err = r.short(a, next, take, given)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return operands, given, nil
}

var number = pattern.Lazy(`^-[0-9]+$`)

// short reads a group of short options, such as -rn or -k2.
func (r *rule) short(
	a string, next func() (string, error), take func(option, value string) error, given map[string][]string,
) error {
	for i, c := range a[1:] {
		o := "-" + string(c)
		switch {
		case r.flags[o]:
			given[o] = append(given[o], "")
			continue
		case !r.values[o] && !r.paths[o]:
			return fmt.Errorf("the option %q is not allowed", cut(o))
		}
		value := a[1+i+len(string(c)):]
		if value == "" {
			var err error
			if value, err = next(); err != nil {
				return err
			}
		}
		return take(o, value)
	}
	return nil
}

// operand decides about one operand.
func operand(kind, o string) error {
	switch kind {
	case "path":
		if !inside(o) {
			return fmt.Errorf("%q is not below /workspace; name files from there, as in input/a.txt", cut(o))
		}
	case "rev":
		// HEAD~1, main..dev, HEAD:src/a.go, src/a.go
		_, at, _ := strings.Cut(o, ":")
		if strings.HasPrefix(o, ":") || !inside(o) || !inside(at) {
			return fmt.Errorf("%q is neither a revision nor a path below /workspace", cut(o))
		}
	case "plus":
		if !strings.HasPrefix(o, "+") {
			return fmt.Errorf("%q: a format begins with +", cut(o))
		}
	case "name":
		if !inside(o) || strings.HasPrefix(o, ".") {
			return fmt.Errorf("%q is not a name", cut(o))
		}
	}
	return nil
}

// inside reports whether a path stays below /workspace, where commands start. No program of the table expands "~".
func inside(p string) bool {
	if p == "-" || p == "" {
		return true
	}
	if !path.IsAbs(p) {
		p = "/workspace/" + p
	}
	p = path.Clean(p)
	return p == "/workspace" || strings.HasPrefix(p, "/workspace/")
}

// program decides about operands of which the first can be a program or pattern.
func (r *rule) program(operands []string, given map[string][]string) error {
	var programs []string
	for _, o := range []string{"-e", "--expression", "--regexp", "-f", "--file"} {
		if r.values[o] || r.paths[o] { // of jq, -e is an option without a program
			programs = append(programs, given[o]...)
		}
	}
	if _, list := given["--files"]; len(programs) == 0 && !list {
		if len(operands) == 0 {
			return fmt.Errorf("it needs a pattern or a program")
		}
		programs, operands = operands[:1], operands[1:]
	}
	for _, p := range programs {
		if r.operands == "sed" && !sedScript(p) {
			return fmt.Errorf("%q can do more than select and change text", cut(p))
		}
	}
	for _, o := range operands {
		if err := operand("path", o); err != nil {
			return err
		}
	}
	return nil
}

// Scripts of sed: one command with line numbers, or one substitution. None reads, writes or runs anything.
var (
	sedLines = pattern.Lazy(`^(?:(?:[0-9]+|\$)(?:,(?:\+?[0-9]+|\$))?)?!?[pdq=]$`)
	sedFlags = pattern.Lazy(`^[gpiI0-9]{0,4}$`)
)

func sedScript(s string) bool {
	if sedLines().MatchString(s) {
		return true
	}
	if len(s) < 4 || s[0] != 's' || !strings.ContainsRune("/|#,:", rune(s[1])) || strings.ContainsAny(s, "\n\x00") {
		return false
	}
	parts, part, escaped := []string{}, "", false
	for _, c := range s[2:] {
		switch {
		case escaped:
			part, escaped = part+string(c), false
		case c == '\\':
			escaped = true
		case c == rune(s[1]):
			parts, part = append(parts, part), ""
		default:
			part += string(c)
		}
	}
	return len(parts) == 2 && !escaped && sedFlags().MatchString(part)
}

// The words of find(1) that select and print. Others run, write or delete.
var (
	findPlain = strings.Fields("-print -print0 -empty -not ! -a -and -o -or ( ) , -prune -depth -daystart -mount -xdev " +
		"-true -false -readable -writable -executable -nouser -nogroup -follow -noleaf -ls -quit -H -L -P")
	findText = strings.Fields("-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype " +
		"-size -mtime -atime -ctime -mmin -amin -cmin -maxdepth -mindepth -perm -user -group -uid -gid -links -inum -lname " +
		"-ilname -used -printf")
	findPath = strings.Fields("-newer -anewer -cnewer -samefile")
)

func findExpression(args []string) error {
	for i := 0; i < len(args); i++ {
		a := args[i]
		text, file := slices.Contains(findText, a), slices.Contains(findPath, a)
		switch {
		case text || file:
			if i++; i >= len(args) {
				return fmt.Errorf("%s needs a value", a)
			}
			if file && !inside(args[i]) {
				return operand("path", args[i])
			}
		case slices.Contains(findPlain, a):
		case strings.HasPrefix(a, "-"):
			return fmt.Errorf("the expression %q is not allowed", cut(a))
		default:
			if err := operand("path", a); err != nil {
				return err
			}
		}
	}
	return nil
}
