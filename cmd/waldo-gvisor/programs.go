//go:build linux

package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	_ "unsafe" // go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	sentry "gvisor.dev/gvisor/runsc/boot/filter"
	sentryconfig "gvisor.dev/gvisor/runsc/boot/filter/config"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter"
	goferconfig "gvisor.dev/gvisor/runsc/fsgofer/filter/config"
)

// gVisor confines its own processes by seccomp programs that its usual build compiles ahead. The
// Go module that we build lacks that step and compiles them at every start, which costs several
// milliseconds. We do the step in scripts/build-gvisor.sh, and put its result where gVisor looks;
// a test holds it against what gVisor would compile.
// A program that is missing, or meant for other settings, is compiled at start as before.

//go:embed programs
var programFiles embed.FS

//go:linkname sentryPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var sentryPrograms map[string]precompiledseccomp.Program

//go:linkname goferPrograms gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
var goferPrograms map[string]precompiledseccomp.Program

// programs are the compiled programs, by the settings that they are for.
type programs struct {
	Sentry, Gofer []precompiledseccomp.Program
}

// used reports whether a program is for the settings of flags.
func used(name string) bool {
	for _, not := range []string{"=true", `Platform="ptrace"`, `Platform="kvm"`} {
		if strings.Contains(name, not) {
			return false
		}
	}
	return !strings.Contains(name, "Platform=") || strings.Contains(name, `Platform="systrap"`)
}

// compile makes the programs.
func compile() (p programs, err error) {
	for _, one := range []struct {
		all func() ([]precompiledseccomp.Program, error)
		out *[]precompiledseccomp.Program
	}{{sentryconfig.PrecompiledPrograms, &p.Sentry}, {goferconfig.PrecompiledPrograms, &p.Gofer}} {
		all, err := one.all()
		if err != nil {
			return p, err
		}
		for _, x := range all {
			if used(x.Name) {
				*one.out = append(*one.out, x)
			}
		}
	}
	if len(p.Sentry) == 0 || len(p.Gofer) == 0 {
		return p, fmt.Errorf("%d programs for the kernel and %d for the file server: gVisor names its settings otherwise now",
			len(p.Sentry), len(p.Gofer))
	}
	return p, nil
}

func readPrograms() (p programs, err error) {
	b, err := programFiles.ReadFile("programs/" + runtime.GOARCH + ".json")
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(b, &p)
}

// loadPrograms gives gVisor the programs of this build, where there are any.
func loadPrograms() {
	p, err := readPrograms()
	if err != nil {
		return
	}
	sentry.ListPrecompiled() // makes the maps
	gofer.ListPrecompiled()
	for _, x := range p.Sentry {
		sentryPrograms[x.Name] = x
	}
	for _, x := range p.Gofer {
		goferPrograms[x.Name] = x
	}
}

// compileName is the argument zero by which the build asks for the programs.
const compileName = "waldo-compile"

func compileMain() int {
	p, err := compile()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
