package main

import (
	"fmt"
	"slices"
	"strings"
)

// pages asks for a list page by page until it is whole, and then for the answer over all its entries.
func pages(
	tool, name string, args map[string]any, answer func(all []map[string]any) string,
) func([]map[string]any) ([]call, string) {
	return func(results []map[string]any) ([]call, string) {
		all := entries(results, name)
		if len(results) > 0 {
			if total, _ := results[0]["total"].(float64); len(all) >= int(total) {
				return nil, answer(all)
			}
		}
		next := map[string]any{"limit": 500, "offset": len(all)}
		for k, v := range args {
			next[k] = v
		}
		return []call{{tool, next}}, ""
	}
}

func entries(results []map[string]any, name string) (all []map[string]any) {
	for _, r := range results {
		list, _ := r[name].([]any)
		for _, e := range list {
			if m, ok := e.(map[string]any); ok {
				all = append(all, m)
			}
		}
	}
	return all
}

// once makes some calls together, and then answers.
func once(calls []call, answer func(results []map[string]any) string) func([]map[string]any) ([]call, string) {
	return func(results []map[string]any) ([]call, string) {
		if len(results) == 0 {
			return calls, ""
		}
		return nil, answer(results)
	}
}

// counted writes how often each value of a field occurs, in order.
func counted(all []map[string]any, field string) string {
	n := map[string]int{}
	for _, e := range all {
		n[fmt.Sprint(e[field])]++
	}
	var out []string
	for k, v := range n {
		out = append(out, fmt.Sprintf("%s %d", k, v))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// everyone and everything are the start of programs that read a whole list.
const (
	everyone = "rows, n = [], 1\nwhile len(rows) < n:\n  p = await desk.list_customers(limit=500, offset=len(rows))\n" +
		"  rows += p.customers; n = p.total\n"
	everything = "rows, n = [], 1\nwhile len(rows) < n:\n  p = await desk.list_tickets(limit=500, offset=len(rows))\n" +
		"  rows += p.tickets; n = p.total\n"
	counts = "from collections import Counter\nfor k, v in sorted(Counter(str(r[%q]) for r in rows).items()): " +
		"print(k, v)\n"
)

// tasks are the ten tasks. They are fixed: a change makes earlier figures another measurement.
var tasks = []task{
	{"look up one customer", false,
		once([]call{{"get_customer", map[string]any{"id": 17}}},
			func(r []map[string]any) string { return fmt.Sprint(r[0]["name"]) }),
		"print(desk.get_customer(id=17).name)"},
	{"open one ticket", false,
		once([]call{{"create_ticket", map[string]any{"customer_id": 4, "title": "Call back", "priority": "low"}}},
			func(r []map[string]any) string { return fmt.Sprint(r[0]["id"]) }),
		`print(desk.create_ticket(customer_id=4, title="Call back", priority="low").id)`},
	{"look up twenty customers", false,
		once(twenty("get_customer"), func(r []map[string]any) string {
			var names []string
			for _, c := range r {
				names = append(names, fmt.Sprint(c["name"]))
			}
			return strings.Join(names, "\n")
		}),
		"for i in range(1, 21): print(desk.get_customer(id=i).name)"},
	{"close twenty tickets", false,
		once(twenty("close_ticket"), func(r []map[string]any) string { return fmt.Sprint(len(r)) }),
		"print(len([desk.close_ticket(id=i) for i in range(1, 21)]))"},
	{"customers by country, of 5,000", true,
		pages("list_customers", "customers", nil, func(all []map[string]any) string { return counted(all, "country") }),
		everyone + fmt.Sprintf(counts, "country")},
	{"customers by plan, of 5,000", true,
		pages("list_customers", "customers", nil, func(all []map[string]any) string { return counted(all, "plan") }),
		everyone + fmt.Sprintf(counts, "plan")},
	{"the customer with the most open tickets, of 5,000", true,
		pages("list_customers", "customers", nil, func(all []map[string]any) string {
			best := all[0]
			for _, c := range all {
				if c["open_tickets"].(float64) > best["open_tickets"].(float64) {
					best = c
				}
			}
			return fmt.Sprint(best["id"])
		}),
		everyone + "print(max(rows, key=lambda r: r.open_tickets).id)"},
	{"enterprise customers in Germany, of 5,000", true,
		pages("search_customers", "customers", map[string]any{"query": "enterprise"}, func(all []map[string]any) string {
			return fmt.Sprint(len(slices.DeleteFunc(all, func(c map[string]any) bool {
				return c["country"] != "DE" || c["plan"] != "enterprise"
			})))
		}),
		"rows, n = [], 1\nwhile len(rows) < n:\n  p = await desk.search_customers(query='enterprise', limit=500, " +
			"offset=len(rows))\n  rows += p.customers; n = p.total\nprint(sum(r.country == 'DE' and r.plan == " +
			"'enterprise' for r in rows))"},
	{"tickets by title, of 2,555", true,
		pages("list_tickets", "tickets", nil, func(all []map[string]any) string { return counted(all, "title") }),
		everything + fmt.Sprintf(counts, "title")},
	{"customers with three open tickets, with their names", true,
		pages("list_customers", "customers", nil, func(all []map[string]any) string {
			return fmt.Sprint(len(slices.DeleteFunc(all, func(c map[string]any) bool {
				return c["open_tickets"].(float64) < 3
			})))
		}),
		everyone + "busy = [r.name for r in rows if r.open_tickets > 2]\nworkspace.write('busy.json', busy)\n" +
			"print(len(busy))"},
}

func twenty(tool string) (calls []call) {
	for i := range 20 {
		calls = append(calls, call{tool, map[string]any{"id": i + 1}})
	}
	return calls
}
