#!/usr/bin/python3
# Starts waldo serve and has it run a script twice, over stdio. Says of each how it ended and in what kind of sandbox.
# The argument is how many seconds sandboxes have to be made ahead.
import json, os, subprocess, sys, tempfile, time

os.chdir(tempfile.mkdtemp())
serve = subprocess.Popen(["waldo", "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def say(method, params, number=None):
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    if number:
        message["id"] = number
    serve.stdin.write(json.dumps(message) + "\n")
    serve.stdin.flush()
    for line in serve.stdout if number else ():
        answer = json.loads(line)
        if answer.get("id") == number:
            return answer


say("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "machines", "version": "1"}}, 1)
say("notifications/initialized", {})
time.sleep(float(sys.argv[1]))
for number in 2, 3:
    answer = say("tools/call", {"name": "run_python", "arguments": {"code": "print(6*7)"}}, number)
    facts = answer.get("result", {}).get("_meta", {}).get("waldo/facts")
    if not facts:
        sys.exit(json.dumps(answer))
    print(number, facts["status"], facts["stdout"].strip(), facts["sandbox"]["driver"], "warm" if facts["sandbox"].get("warm") else "cold", facts.get("warnings", []))
serve.stdin.close()
sys.exit(serve.wait(60))
