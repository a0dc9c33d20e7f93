package codegen

import (
	"strconv"
	"strings"
)

// longest bounds a module's name, so that every file system takes it.
const longest = 80

// reserved names cannot be modules: keywords of either language, names of the index, files that have a meaning, and
// devices of Windows. The comparison ignores case.
var reserved = words(`
	false none true and as assert async await break class continue def del elif else except finally for from global if
	import in is lambda nonlocal not or pass raise return try while with yield match case type
	arguments catch const debugger default delete do enum eval export extends function implements instanceof interface
	let new null package private protected public static super switch this throw typeof var void then constructor
	prototype toJSON index main server server_url tools load headers toolerror
	con prn aux nul clock
	com0 com1 com2 com3 com4 com5 com6 com7 com8 com9 lpt0 lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9`)

func words(all string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(all) {
		m[strings.ToLower(w)] = true
	}
	return m
}

// Folder returns the folder of a server: an identifier of Python and TypeScript. Names that waldo.yaml would refuse
// get a digest.
func Folder(name string) string {
	plain := plainName(name)
	switch {
	case plain == "":
		return "server_" + digest(name)[:8]
	case strings.ReplaceAll(name, "-", "_") != strings.TrimSuffix(plain, "_"):
		return plain + "_" + digest(name)[:8]
	}
	return plain
}

// plainName spells a name in letters, digits and "_", as waldo's sandboxes spell it. It returns "" if no letter or
// digit remains or the name is too long.
func plainName(name string) string {
	s := strings.Map(func(r rune) rune {
		if r < 0x80 && identifierByte(byte(r)) {
			return r
		}
		return '_'
	}, name)
	if len(s) > longest || strings.Trim(s, "_") == "" {
		return ""
	}
	if s[0] == '_' || s[0] >= '0' && s[0] <= '9' {
		s = "tool_" + s
	}
	if reserved[strings.ToLower(s)] {
		s += "_"
	}
	return s
}

func identifierByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// moduleNames gives each distinct tool a module name of its own, on file systems that ignore case, too. A tool whose
// name is a module's name keeps it; where several would share one, the others get a digest of the wire name.
func moduleNames(wire []string) []string {
	plain, share, exact := make([]string, len(wire)), map[string]int{}, map[string]int{}
	for i, name := range wire {
		plain[i] = plainName(name)
		share[strings.ToLower(plain[i])]++
		if plain[i] == name {
			exact[strings.ToLower(name)]++
		}
	}
	out, used := make([]string, len(wire)), map[string]bool{}
	take := func(i int, name string) bool {
		key := strings.ToLower(name)
		if used[key] {
			return false
		}
		out[i], used[key] = name, true
		return true
	}
	for i, name := range wire {
		key := strings.ToLower(plain[i])
		if plain[i] != "" && (share[key] == 1 || plain[i] == name && exact[key] == 1) {
			take(i, plain[i])
		}
	}
	for i, name := range wire {
		if out[i] != "" {
			continue
		}
		head, sum := plain[i], digest(name)
		if head == "" {
			head = "tool"
		}
		n := 8
		for !take(i, head+"_"+sum[:n]) && n < len(sum) {
			n += 8
		}
		for k := 2; out[i] == ""; k++ {
			take(i, head+"_"+sum+"_"+strconv.Itoa(k))
		}
	}
	return out
}
