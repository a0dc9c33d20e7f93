// Command chart renders the Helm chart of waldo by Helm's own library, and prints its objects. It is a module apart:
// waldo does not need Helm.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// render returns the objects of the chart in the order of its files, tests of the release included. The values are
// checked against the chart's schema first.
func render(dir, namespace string, values map[string]any) ([]string, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "waldo", Namespace: namespace, IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities.Copy())
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var names, out []string
	for name := range files {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for text := range strings.SplitSeq("\n"+files[name], "\n---\n") {
			if text = strings.TrimSpace(text); text != "" {
				out = append(out, text+"\n")
			}
		}
	}
	return out, nil
}

func main() {
	dir := flag.String("chart", "deploy/helm/waldo", "the chart's folder")
	file := flag.String("values", "", "a file of values")
	namespace := flag.String("namespace", "waldo", "the namespace")
	flag.Parse()
	values, err := chartutil.ReadValuesFile(*file)
	var objects []string
	if err == nil {
		objects, err = render(*dir, *namespace, values)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
	fmt.Print(strings.Join(objects, "---\n"))
}
