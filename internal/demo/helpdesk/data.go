package helpdesk

import (
	"fmt"
	"math/rand/v2"
)

// Customers is how many customers the helpdesk has; their ids are 1 to Customers.
const Customers = 5000

// Customer is one invented customer. The phone numbers are from the fictional range 555-01xx. The SSN-like numbers
// begin with 9, which is never issued. The card-like numbers are test numbers with a valid Luhn digit.
type Customer struct {
	ID          int    `json:"id"`
	Name        string `json:"name"`
	Email       string `json:"email"`
	Phone       string `json:"phone"`
	SSN         string `json:"ssn"`
	Card        string `json:"card"`
	Plan        string `json:"plan"`
	Priority    string `json:"priority"`
	Country     string `json:"country"`
	OpenTickets int    `json:"open_tickets"`
}

// Ticket is one ticket.
type Ticket struct {
	ID         int    `json:"id"`
	CustomerID int    `json:"customer_id"`
	Title      string `json:"title"`
	Priority   string `json:"priority"`
	Status     string `json:"status"` // open or closed
}

var (
	firsts = []string{
		"Ada", "Alan", "Barbara", "Claude", "Dorothy", "Edsger", "Frances", "Grace", "Hedy", "Ivan", "Joan", "Karen",
		"Leslie", "Margaret", "Niklaus", "Olga", "Peter", "Radia", "Sophie", "Tim",
	}
	lasts = []string{
		"Abbott", "Baker", "Castle", "Dalton", "Ellis", "Fisher", "Grant", "Harper", "Irwin", "Jordan", "Keller", "Lambert",
		"Mercer", "Norton", "Osborne", "Porter", "Quinn", "Ramsey", "Sutton", "Turner", "Underhill", "Vance", "Walsh", "York",
		"Zimmer",
	}
	plans      = []string{"free", "team", "business", "enterprise"}
	priorities = []string{"low", "normal", "high"}
	countries  = []string{"DE", "FR", "GB", "IN", "JP", "NL", "US", "BR", "KE", "AU"}
	titles     = []string{
		"Cannot log in", "Invoice shows the wrong amount", "Export never finishes", "Asks for a refund",
		"App is slow since Monday", "Wants to change the plan", "Data looks out of date", "Password e-mail does not arrive",
	}
)

// desk returns the same customers and tickets at every start.
func desk() (customers []Customer, tickets []Ticket) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	for id := 1; id <= Customers; id++ {
		first, last := pick(firsts), pick(lasts)
		c := Customer{ID: id, Name: first + " " + last,
			Email:    fmt.Sprintf("%s.%s%d@customer.example", lower(first), lower(last), id),
			Phone:    fmt.Sprintf("+1-%03d-555-01%02d", 201+r.IntN(700), r.IntN(100)),
			SSN:      fmt.Sprintf("9%02d-%02d-%04d", r.IntN(100), 1+r.IntN(99), 1+r.IntN(9999)),
			Card:     card(r),
			Plan:     pick(plans),
			Priority: pick(priorities),
			Country:  pick(countries)}
		for range r.IntN(4) {
			if r.IntN(3) == 0 {
				c.OpenTickets++
				tickets = append(tickets, Ticket{
					ID: len(tickets) + 1, CustomerID: id, Title: pick(titles), Priority: pick(priorities), Status: "open",
				})
			}
		}
		customers = append(customers, c)
	}
	return customers, tickets
}

func lower(s string) string { return string(s[0]|0x20) + s[1:] }

// card makes a number of 16 digits from the range 4000 0000 … of test numbers, with its Luhn digit.
func card(r *rand.Rand) string {
	digits := []byte("400000000")
	for len(digits) < 15 {
		digits = append(digits, byte('0'+r.IntN(10)))
	}
	sum := 0
	for i, d := range digits {
		n := int(d - '0')
		if i%2 == 0 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return string(append(digits, byte('0'+(10-sum%10)%10)))
}
