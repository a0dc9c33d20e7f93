package helpdesk

import (
	"errors"
	"fmt"
	"strings"
)

// tool is one tool of the helpdesk. Its schemas are text: they are what a client reads.
type tool struct {
	name, title, description string
	input, output            string
	annotations              string
	run                      func(d *data, a args) (result any, summary string, err error)
}

// args are the arguments that any tool may take; its schema says which ones it does.
type args struct {
	Offset     int    `json:"offset"`
	Limit      int    `json:"limit"`
	ID         int    `json:"id"`
	Query      string `json:"query"`
	CustomerID int    `json:"customer_id"`
	Title      string `json:"title"`
	Priority   string `json:"priority"`
	Status     string `json:"status"`
}

const (
	customer = `{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},` +
		`"email":{"type":"string"},"phone":{"type":"string"},"ssn":{"type":"string"},"card":{"type":"string"},` +
		`"plan":{"type":"string"},"priority":{"type":"string"},"country":{"type":"string"},` +
		`"open_tickets":{"type":"integer"}},"required":["id","name","email","phone","ssn","card","plan","priority",` +
		`"country","open_tickets"]}`
	ticket = `{"type":"object","properties":{"id":{"type":"integer"},"customer_id":{"type":"integer"},` +
		`"title":{"type":"string"},"priority":{"type":"string"},"status":{"type":"string"}},"required":["id","customer_id",` +
		`"title","priority","status"]}`
	priority = `{"type":"string","enum":["low","normal","high"]}`
	paging   = `"offset":{"type":"integer","minimum":0,"description":"How many to step over."},` +
		`"limit":{"type":"integer","minimum":1,"maximum":500,"description":"How many at most; 50 unless told."}`
	reads    = `{"readOnlyHint":true,"openWorldHint":false}`
	writes   = `{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":false}`
	destroys = `{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}`
)

func list(name, of string) string {
	return `{"type":"object","properties":{"` + name + `":{"type":"array","items":` + of +
		`},"total":{"type":"integer"}},"required":["` + name + `","total"]}`
}

func object(properties string, required ...string) string {
	need := ""
	if len(required) > 0 {
		need = `,"required":["` + strings.Join(required, `","`) + `"]`
	}
	return `{"type":"object","properties":{` + properties + `}` + need + `,"additionalProperties":false}`
}

const theID = `"id":{"type":"integer","minimum":1}`

var tools = []tool{
	{"list_customers", "List customers", "List customers in the order of their ids, a page at a time.", object(paging),
		list("customers", customer), reads, listCustomers},
	{"get_customer", "Get a customer", "Get one customer by id.", object(theID, "id"), customer, reads, getCustomer},
	{
		"search_customers", "Search customers",
		"Find customers whose name, e-mail address, plan or country contains the text.",
		object(`"query":{"type":"string","minLength":1},`+paging, "query"), list("customers", customer),
		reads, searchCustomers,
	},
	{"list_tickets", "List tickets", "List tickets, of one customer or of all, a page at a time.",
		object(`"customer_id":{"type":"integer","minimum":1},"status":{"type":"string","enum":["open","closed"]},` + paging),
		list("tickets", ticket), reads, listTickets},
	{"create_ticket", "Create a ticket", "Open a ticket for a customer.",
		object(`"customer_id":{"type":"integer","minimum":1},"title":{"type":"string","minLength":1,"maxLength":200},`+
			`"priority":`+priority, "customer_id", "title", "priority"), ticket, writes, createTicket},
	{"close_ticket", "Close a ticket", "Close a ticket.", object(theID, "id"), ticket, writes, closeTicket},
	{"delete_customer", "Delete a customer", "Delete a customer and the customer's tickets, for good.",
		object(theID, "id"), object(`"deleted":{"type":"integer"},"tickets":{"type":"integer"}`, "deleted", "tickets"),
		destroys, deleteCustomer},
}

var errNotFound = errors.New("not found")

// page returns one page of a list: 50 entries by default, at most 500.
func page[T any](list []T, a args) []T {
	limit := a.Limit
	if limit == 0 {
		limit = 50
	}
	begin := min(max(0, a.Offset), len(list))
	return list[begin : begin+min(max(0, limit), 500, len(list)-begin)]
}

func listCustomers(d *data, a args) (any, string, error) {
	p := page(d.customers, a)
	return map[string]any{"customers": p, "total": len(d.customers)},
		fmt.Sprintf("%d of %d customers", len(p), len(d.customers)), nil
}

func (d *data) customer(id int) (*Customer, error) {
	for i := range d.customers {
		if d.customers[i].ID == id {
			return &d.customers[i], nil
		}
	}
	return nil, fmt.Errorf("customer %d: %w", id, errNotFound)
}

func getCustomer(d *data, a args) (any, string, error) {
	c, err := d.customer(a.ID)
	if err != nil {
		return nil, "", err
	}
	return *c, fmt.Sprintf("%s, %s, %s, plan %s", c.Name, c.Email, c.Country, c.Plan), nil
}

func searchCustomers(d *data, a args) (any, string, error) {
	var found []Customer
	q := strings.ToLower(a.Query)
	for _, c := range d.customers {
		if strings.Contains(strings.ToLower(c.Name+"\n"+c.Email+"\n"+c.Plan+"\n"+c.Country), q) {
			found = append(found, c)
		}
	}
	p := page(found, a)
	return map[string]any{"customers": append([]Customer{}, p...), "total": len(found)},
		fmt.Sprintf("%d of %d matches", len(p), len(found)), nil
}

func listTickets(d *data, a args) (any, string, error) {
	var found []Ticket
	for _, t := range d.tickets {
		if (a.CustomerID == 0 || t.CustomerID == a.CustomerID) && (a.Status == "" || t.Status == a.Status) {
			found = append(found, t)
		}
	}
	p := page(found, a)
	return map[string]any{"tickets": append([]Ticket{}, p...), "total": len(found)},
		fmt.Sprintf("%d of %d tickets", len(p), len(found)), nil
}

func createTicket(d *data, a args) (any, string, error) {
	c, err := d.customer(a.CustomerID)
	if err != nil {
		return nil, "", err
	}
	if a.Title == "" || a.Priority != "low" && a.Priority != "normal" && a.Priority != "high" {
		return nil, "", errors.New("a ticket needs a title and a priority: low, normal or high")
	}
	c.OpenTickets++
	d.lastTicket++
	t := Ticket{ID: d.lastTicket, CustomerID: c.ID, Title: a.Title, Priority: a.Priority, Status: "open"}
	d.tickets = append(d.tickets, t)
	return t, fmt.Sprintf("ticket %d is open", t.ID), nil
}

func closeTicket(d *data, a args) (any, string, error) {
	for i := range d.tickets {
		t := &d.tickets[i]
		if t.ID != a.ID {
			continue
		}
		if t.Status == "open" {
			t.Status = "closed"
			if c, err := d.customer(t.CustomerID); err == nil {
				c.OpenTickets--
			}
		}
		return *t, fmt.Sprintf("ticket %d is closed", t.ID), nil
	}
	return nil, "", fmt.Errorf("ticket %d: %w", a.ID, errNotFound)
}

func deleteCustomer(d *data, a args) (any, string, error) {
	if _, err := d.customer(a.ID); err != nil {
		return nil, "", err
	}
	var customers []Customer
	for _, c := range d.customers {
		if c.ID != a.ID {
			customers = append(customers, c)
		}
	}
	var kept []Ticket
	for _, t := range d.tickets {
		if t.CustomerID != a.ID {
			kept = append(kept, t)
		}
	}
	gone := len(d.tickets) - len(kept)
	d.customers, d.tickets = customers, kept
	return map[string]int{"deleted": a.ID, "tickets": gone},
		fmt.Sprintf("customer %d and %d tickets are deleted", a.ID, gone), nil
}
