#!/usr/bin/python3
# Asks the gateway at a port of this machine, with the token in $TOKEN: ask PORT /PATH prints its answer, ask PORT CODE
# runs a program in Python and prints how it ended, by which limit, its output, and warnings about cgroups.
import json, os, sys, urllib.error, urllib.request

port, what = sys.argv[1:]
path, body = what, None
if not what.startswith("/"):
    path, body = "/api/v1/runs", json.dumps({"language": "python", "code": what}).encode()
headers = {"Content-Type": "application/json"}
if os.environ.get("TOKEN"):
    headers["Authorization"] = "Bearer " + os.environ["TOKEN"]
try:
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers), timeout=230) as answer:
        status, text = answer.status, answer.read().decode()
except urllib.error.HTTPError as refused:
    status, text = refused.code, refused.read().decode()
except OSError as e:
    sys.exit(f"not reached: {e}")
if not body or status != 200:
    sys.exit(f"{status} {text[:200]}")
facts = json.loads(text)["facts"]
print(status, facts["status"], facts.get("limit"), facts["stdout"].strip(), [w for w in facts["warnings"] if "cgroup" in w])
