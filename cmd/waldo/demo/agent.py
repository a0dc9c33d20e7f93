# What an agent might write: find the customers to call back, and act on the first one.
import errno, socket
from waldo import Denied

customers = []
while True:
    page = servers.helpdesk.list_customers(offset=len(customers), limit=500)
    customers += page.customers
    if len(customers) >= page.total:
        break

urgent = [c for c in customers if c["priority"] == "high" and c["open_tickets"] > 0]
workspace.write("callbacks.json", urgent)
print(f"read {len(customers)} customers, kept {len(urgent)} in callbacks.json")
print(f"the first one's address, as the model sees it: {urgent[0]['email']}")

try:
    socket.create_connection(("1.1.1.1", 443), timeout=2)
    print("socket: CONNECTED")
except OSError as e:
    print(f"socket to 1.1.1.1: refused with errno {e.errno}, {errno.errorcode[e.errno]}")

ticket = servers.helpdesk.create_ticket(customer_id=urgent[0]["id"], title="Call back today", priority="high")
print(f"ticket: {ticket}")

try:
    servers.helpdesk.delete_customer(id=urgent[0]["id"])
    print("deleted a customer!")
except Denied as e:
    print(f"delete_customer: {e}")
