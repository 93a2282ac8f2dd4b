package main

import (
	"fmt"
	"math/rand"
	"net/url"
	"strings"
	"time"
)

// generate returns the sequence of a seed. If shards is true, lists, watches and deletions of a collection may have
// shard selectors.
func generate(seed int64, steps int, shards bool) sequence {
	g := &gen{Rand: rand.New(rand.NewSource(seed)), calm: seed%2 == 1, shards: shards}
	sequence := sequence{seed: seed, version: map[bool]int{true: 1}[seed%4 == 0]}
	theme := themes[int(seed%int64(len(themes)))]
	for len(sequence.steps) < steps {
		made := g.step(theme)
		if made.label == "deletecollection" && g.odds(2) {
			sequence.steps = append(sequence.steps, g.asOf(made, theme)...)
		} else {
			sequence.steps = append(sequence.steps, made)
		}
	}
	return sequence
}

// theme is the kinds of requests in a sequence, with their weights.
type theme []struct {
	times int
	make  func(*gen) step
}

// themes has all themes. Successive seeds use successive themes.
var themes = []theme{
	// A mixture of all requests.
	{
		{14, (*gen).create}, {20, (*gen).update}, {7, (*gen).jsonPatched}, {7, (*gen).merged}, {7, (*gen).strategic}, {12, (*gen).apply},
		{6, (*gen).remove}, {2, (*gen).removeAll}, {6, (*gen).get}, {11, (*gen).list_}, {5, (*gen).watch}, {3, (*gen).odd},
	},
	// Ownership of fields.
	{
		{5, (*gen).create}, {20, (*gen).update}, {4, (*gen).jsonPatched}, {8, (*gen).merged}, {8, (*gen).strategic}, {45, (*gen).apply}, {3, (*gen).remove},
	},
	// Versions, pages and watches.
	{
		{15, (*gen).create}, {15, (*gen).update}, {5, (*gen).merged}, {6, (*gen).remove}, {1, (*gen).removeAll}, {8, (*gen).get}, {35, (*gen).list_}, {15, (*gen).watch},
	},
	// Deletion.
	{
		{20, (*gen).create}, {15, (*gen).update}, {8, (*gen).merged}, {4, (*gen).apply}, {35, (*gen).remove}, {8, (*gen).removeAll}, {5, (*gen).list_}, {5, (*gen).watch},
	},
	// Patches.
	{
		{10, (*gen).create}, {10, (*gen).update}, {25, (*gen).jsonPatched}, {25, (*gen).merged}, {25, (*gen).strategic}, {5, (*gen).remove},
	},
}

// step returns a random request of a theme.
func (g *gen) step(theme theme) step {
	all := 0
	for _, choice := range theme {
		all += choice.times
	}
	at := g.Intn(all)
	var made step
	for _, choice := range theme {
		if at -= choice.times; at < 0 {
			made = choice.make(g)
			break
		}
	}
	if g.odds(100) {
		made.sleep = 1200 * time.Millisecond
	}
	return made
}

func (g *gen) jsonPatched() step {
	return g.patch("patch-json", "application/json-patch+json", g.jsonPatch())
}

func (g *gen) merged() step {
	return g.patch("patch-merge", "application/merge-patch+json", g.mergePatch(false))
}

func (g *gen) strategic() step {
	return g.patch("patch-strategic", "application/strategic-merge-patch+json", g.mergePatch(true))
}

// collection returns the path of the Leases in a namespace, mostly in the first namespace of the sequence.
func (g *gen) collection() string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + g.mostly(25, "${ns}", "${other}", "${other}", goingAway, "differential-missing", "UPPER", "a%20b", "%E9", "${ns}%2F") + "/leases"
}

func (g *gen) item(name string) string { return g.collection() + "/" + name }

// pathName returns the name of a Lease as part of a path. Few of these names are unusual or invalid.
func (g *gen) pathName() string {
	return g.mostly(25, g.name(), "${name:0}", "l%30", "L0", "a%2Fb", "..", ".", "%2e%2e", "l0.", "%C3%A9", "a%20b", strings.Repeat("n", 253), strings.Repeat("n", 254), "%00", "a;b", "l0,l1", "~", "a+b", "%25")
}

// query appends the parameters that are not empty to a target.
func query(target string, parameters ...string) string {
	separator := "?"
	for _, parameter := range parameters {
		if parameter != "" {
			target += separator + parameter
			separator = "&"
		}
	}
	return target
}

// accept returns the Accept header, if any.
func (g *gen) accept(list bool) [][2]string {
	if !g.odds(3) {
		return [][2]string{{"Accept", g.one("application/json", "application/json", "application/vnd.kubernetes.protobuf")}}
	}
	table := "application/json;as=Table;v=v1;g=meta.k8s.io"
	partial := "PartialObjectMetadata"
	if list {
		partial = g.mostly(5, "PartialObjectMetadataList", partial)
	}
	value := g.one("", "application/yaml", "*/*", "application/*", "text/html", "application/vnd.kubernetes.protobuf,application/json", table, table, table+",application/json",
		"application/json;as=Table;v=v1beta1;g=meta.k8s.io", "application/json;as="+partial+";v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf;as="+partial+";v=v1;g=meta.k8s.io",
		"application/json;as="+partial+";v=v1beta1;g=meta.k8s.io", "application/yaml;as="+partial+";v=v1;g=meta.k8s.io", "application/yaml;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Bad;v=v1;g=meta.k8s.io",
		"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", "application/json;q=0.5,application/yaml;q=0.9", "application/json;q=0,application/yaml", "text/plain,application/json",
		"application/json;pretty=1", "application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch", "application/json;charset=utf-8", "bad", "APPLICATION/JSON", "application/json, ,*/*;q=0.1")
	if value == "" {
		return nil
	}
	return [][2]string{{"Accept", value}}
}

// agent returns the User-Agent header.
func (g *gen) agent() [][2]string {
	value := g.mostly(5, "differential/1.0", "m1/1.0 (linux)", "kubectl/v1.34.4 (linux/amd64)", "curl/8.5.0", "", "Mozilla/5.0 (X11)", strings.Repeat("a", 200)+"/x", "\u00e9/1", "no-slash", "/x", "x /y", "a\tb/1")
	if value == "" {
		return nil
	}
	return [][2]string{{"User-Agent", value}}
}

// writing returns query parameters for a write.
func (g *gen) writing() []string {
	var parameters []string
	if g.odds(4) {
		parameters = append(parameters, "fieldManager="+g.mostly(10, g.one("m1", "m2", "m3"), "", "a%0Ab", strings.Repeat("m", 128), strings.Repeat("m", 129), "%C3%A9", "a%20b", "m1&fieldManager=m2", "%FF", "%00"))
	}
	if g.odds(4) {
		parameters = append(parameters, "fieldValidation="+g.mostly(12, g.one("Ignore", "Warn", "Strict"), "", "bad", "strict", "Strict&fieldValidation=Ignore"))
	}
	if g.odds(10) {
		parameters = append(parameters, "dryRun="+g.mostly(6, "All", "", "bad", "All&dryRun=All", "all", "All&dryRun=bad", "true"))
	}
	if g.odds(25) {
		parameters = append(parameters, g.one("pretty=true", "pretty=1", "pretty=false", "pretty", "timeout=5s", "unknown=1", "%zz", "a=%", "force=true", "resourceVersion=1", "a;b=1", "=", "limit=x", "timeout=x", "timeout=0"))
	}
	return parameters
}

func (g *gen) create() step {
	name, target := quoted(g.name()), g.collection()
	if g.wrong(12) {
		name = g.oddName()
	}
	text := g.lease(name)
	if g.odds(12) {
		g.serial++
		prefix := fmt.Sprintf("g%d-", g.serial)
		prefix = g.mostly(6, prefix, prefix+strings.Repeat("p", 70), prefix+strings.Repeat("p", 250), prefix+"UPPER", prefix+"é")
		text = strings.Replace(g.lease(""), `"metadata":{`, `"metadata":{"generateName":`+quoted(prefix)+g.mostly(1000, ",", ""), 1)
		text = strings.Replace(text, ",}", "}", 1)
	}
	body, header := g.encoded(text, "Lease")
	return step{label: "create", method: "POST", target: query(target, g.writing()...), body: body, header: append(header, append(g.accept(false), g.agent()...)...)}
}

func (g *gen) update() step {
	name := g.name()
	path := name
	if g.wrong(15) {
		path = g.pathName()
	}
	body, header := g.encoded(g.lease(g.mostly(15, quoted(name), `"l1"`, `""`, `"L0"`)), "Lease")
	label := "update"
	if !g.odds(8) {
		body.from, body.edits = name, g.edits()
	} else if g.odds(2) {
		label = "update blind"
		body.text = strings.Replace(body.text, `"metadata":{`, `"metadata":{"resourceVersion":"`+g.one("${rv:l0:0}", "${rv:l0:0}", "${rv:l0:1}", "0", "")+`",`, 1)
		body.text = strings.Replace(body.text, ",}", "}", 1)
	}
	return step{label: label, method: "PUT", target: query(g.item(path), g.writing()...), body: body, header: append(header, append(g.accept(false), g.agent()...)...)}
}

func (g *gen) patch(label, media, text string) step {
	name := g.name()
	if g.wrong(25) {
		name = g.pathName()
	}
	header := contentType(g.mostly(30, media, media+"; charset=utf-8", "application/json", "", "text/plain", "APPLICATION/MERGE-PATCH+JSON", media+";x"))
	parameters := g.writing()
	if g.odds(40) {
		parameters = append(parameters, "force="+g.one("true", "false", "x"))
	}
	return step{label: label, method: "PATCH", target: query(g.item(name), parameters...), body: body{text: text}, header: append(header, append(g.accept(false), g.agent()...)...)}
}

func (g *gen) apply() step {
	name := g.name()
	path := name
	if g.wrong(30) {
		path = g.pathName()
	}
	sent := body{text: g.configuration(name), encoding: g.one("", "yaml")}
	parameters := g.writing()
	if !strings.Contains(strings.Join(parameters, "&"), "fieldManager") && !g.odds(15) {
		parameters = append(parameters, "fieldManager="+g.one("m1", "m2"))
	}
	if g.odds(2) {
		parameters = append(parameters, "force="+g.mostly(10, "true", "false", "", "1", "x"))
	}
	media := g.mostly(20, "application/apply-patch+yaml", "application/apply-patch+cbor", "application/apply-patch+json", "application/apply-patch+yaml; charset=utf-8")
	return step{label: "apply", method: "PATCH", target: query(g.item(path), parameters...), body: sent, header: append(contentType(media), append(g.accept(false), g.agent()...)...)}
}

// deleting returns random options of a deletion: as a body with its Content-Type, or as query parameters.
func (g *gen) deleting() (body, [][2]string, []string) {
	type option struct{ name, json, query string }
	var options []option
	if g.odds(2) {
		policy := g.mostly(12, g.one("Foreground", "Background", "Orphan"), "", "bad", "nil")
		options = append(options, option{"propagationPolicy", quoted(policy), policy})
	}
	if g.odds(4) {
		grace := g.one("0", "5", "-1", "30", "x", "")
		options = append(options, option{"gracePeriodSeconds", g.mostly(8, g.one("0", "5", "-1"), `"x"`, "null", "1.5"), grace})
	}
	if g.odds(8) {
		orphan := g.one("true", "false", "x", "")
		options = append(options, option{"orphanDependents", g.one("true", "false", "null", `"x"`), orphan})
	}
	if g.odds(8) {
		options = append(options, option{"dryRun", g.one(`["All"]`, `["All"]`, `["bad"]`, `[]`, `"All"`, `["All","All"]`), g.one("All", "bad", "")})
	}
	if g.odds(4) {
		version, uid := g.one("${rv:l0:0}", "${rv:l0:1}", "x", ""), g.one("${uid:l0:0}", "${uid:l0:1}", "x", "")
		options = append(options, option{"preconditions", g.one(`{"resourceVersion":"`+version+`"}`, `{"uid":"`+uid+`"}`, `{"uid":"`+uid+`","resourceVersion":"`+version+`"}`, `{}`, "null", `{"x":1}`), ""})
	}
	if g.odds(20) {
		options = append(options, option{g.one("unknown", "kind"), g.one("1", "true", `"x"`, "null"), "true"})
	}
	if g.odds(20) {
		options = append(options, option{breaking, g.one("true", "true", "1", "false", `"x"`, "null"), g.one("true", "false")})
	}
	if g.odds(3) {
		var parameters []string
		for _, option := range options {
			parameters = append(parameters, option.name+"="+option.query)
		}
		return body{}, nil, parameters
	}
	if len(options) == 0 && g.odds(2) {
		return body{}, nil, nil
	}
	fields := []string{}
	if !g.odds(4) {
		fields = append(fields, `"kind":`+g.mostly(12, `"DeleteOptions"`, `"Lease"`, `""`), `"apiVersion":`+g.mostly(12, g.one(`"v1"`, `"coordination.k8s.io/v1"`, `"meta.k8s.io/v1"`), `"v2"`, `""`, `"policy/v1"`))
	}
	for _, option := range options {
		fields = append(fields, quoted(option.name)+":"+option.json)
	}
	sent, header := g.encoded(g.spoiled(g.object(fields)), "DeleteOptions")
	var parameters []string
	if g.odds(12) {
		parameters = []string{g.one("propagationPolicy=bad", "dryRun=All", "gracePeriodSeconds=x", "pretty=true", "unknown=1", "propagationPolicy=Orphan")}
	}
	return sent, header, parameters
}

func (g *gen) remove() step {
	name := g.name()
	if g.odds(15) {
		name = g.pathName()
	}
	body, header, parameters := g.deleting()
	return step{label: "delete", method: "DELETE", target: query(g.item(name), parameters...), body: body, header: append(header, append(g.accept(false), g.agent()...)...)}
}

func (g *gen) removeAll() step {
	body, header, parameters := g.deleting()
	if strings.Contains(body.text, "preconditions") || strings.Contains(strings.Join(parameters, ""), "preconditions") {
		body.text, parameters = "", nil
	}
	if g.odds(2) {
		parameters = append(parameters, g.selecting()...)
	}
	return step{label: "deletecollection", method: "DELETE", target: query(g.collection(), parameters...), body: body, header: append(header, append(g.acceptOfList(), g.agent()...)...)}
}

// asOf returns three steps: a list, a change, and the given deletion of a collection at a resourceVersion. This is
// mostly the resourceVersion of the list. Only one change comes between the list and the deletion. So no Lease is
// deleted and created again in between, which would leave the servers with different Leases (notSent).
func (g *gen) asOf(removal step, theme theme) []step {
	collection, _, _ := strings.Cut(removal.target, "?")
	change := g.step(theme)
	for change.method == "GET" {
		change = g.step(theme)
	}
	parameters := []string{"resourceVersion=" + g.mostly(12, g.one("${list:0}", "${list:0}", "${list:0}", "0", ""), "x", "-1", "${future}")}
	if !g.odds(3) {
		parameters = append(parameters, "resourceVersionMatch="+g.mostly(12, g.one("Exact", "NotOlderThan"), "", "bad"))
	}
	if g.odds(2) {
		parameters = append(parameters, "limit="+g.mostly(12, g.one("1", "1", "2", "500"), "0", "-1", "x"))
	}
	separator := map[bool]string{true: "&", false: "?"}[strings.Contains(removal.target, "?")]
	removal.target += separator + strings.Join(parameters, "&")
	removal.settle = true
	return []step{{label: "list", method: "GET", target: collection, settle: true}, change, removal}
}

// acceptOfList is like accept, but never asks for the PartialObjectMetadata of a single object (notSent).
func (g *gen) acceptOfList() [][2]string {
	for {
		accept := g.accept(true)
		if len(accept) == 0 || !strings.Contains(accept[0][1], "as=PartialObjectMetadata;") {
			return accept
		}
	}
}

func (g *gen) get() step {
	name := g.name()
	if g.odds(10) {
		name = g.pathName()
	}
	var parameters []string
	made := step{label: "get", method: "GET"}
	if g.odds(4) {
		parameters = append(parameters, "resourceVersion="+g.mostly(12, g.one("0", "${rv:l0:0}", "${rv:l0:1}", "", "${list:0}"), "x", "-1", "1", "18446744073709551616", "${rv:l0:0}&resourceVersion=x"))
		made.settle = true
	}
	if g.odds(10) {
		parameters = append(parameters, g.one("pretty=true", "includeObject=Object", "includeObject=None", "includeObject=bad", "export=true", "watch=0", "resourceVersionMatch=Exact", "unknown", "exact=true", "pretty=0"))
	}
	made.target, made.header = query(g.item(name), parameters...), append(g.accept(false), g.agent()...)
	return made
}

// selecting returns query parameters with selectors.
func (g *gen) selecting() []string {
	var parameters []string
	if g.odds(2) {
		parameters = append(parameters, "labelSelector="+url.QueryEscape(g.mostly(6, g.one("app=a", "app=b", "app", "!app", "app in (a,b)", "app notin (a)", "app!=a", "tier=b,app=a", ""),
			"app=a,", "=", "app==a", "app in a", "app in ()", "app in (a", "a b", "x/y/z=1", "app>1", "app<x", "app=a b", "!", "app=,tier", "app in (,a)", "app in (a,,)", "app in (a,a)", ",", "((", "app notin ()", "é=1", "app="+strings.Repeat("v", 64))))
	}
	if g.odds(3) {
		parameters = append(parameters, "fieldSelector="+url.QueryEscape(g.mostly(6, g.one("metadata.name=l0", "metadata.name!=l0", "metadata.namespace=${ns}", "metadata.name=l1,metadata.namespace=${ns}", ""),
			"spec.holderIdentity=a", "metadata.name", "metadata.name=", "metadata.name=a/b", "metadata.name=..", "metadata.name=a%b", "=", "metadata.name==l0", "metadata.name=l0,metadata.name=l1", "metadata.name=a\\,b", "metadata.name=a\\b", "metadata.namespace=x", "metadata.name=L0", ",", "metadata.name=l0,", "metadata.labels=x")))
	}
	if g.shards && g.odds(2) {
		parameters = append(parameters, "shardSelector="+url.QueryEscape(g.shard()))
		if g.odds(20) {
			parameters = append(parameters, "shardSelector="+url.QueryEscape(g.shard()))
		}
	}
	// QueryEscape has also escaped the symbols of steps, such as ${ns}. They are restored here.
	for at := range parameters {
		parameters[at] = strings.NewReplacer("%24%7B", "${", "%7D", "}").Replace(parameters[at])
	}
	return parameters
}

// shard returns a shard selector. UIDs differ between the servers. So a valid selector by UID selects either all Leases
// or none.
func (g *gen) shard() string {
	const begin, half, end = "'0x0000000000000000'", "'0x8000000000000000'", "'0x10000000000000000'"
	of := func(field, from, to string) string {
		return "shardRange(object.metadata." + field + ", " + from + ", " + to + ")"
	}
	first, second := of("namespace", begin, half), of("namespace", half, end)
	return g.mostly(5, g.one(first, second, of("uid", begin, end)),
		first+" || "+second, of("uid", begin, half)+" || "+of("uid", half, end), of("namespace", "'0x2aaaaaaaaaaaaaaa'", "'0xd555555555555555'"),
		"("+first+")", "  "+second+" // half", of("uid", begin, begin), first+" || "+of("uid", half, end), of("namespace", half, begin),
		of("name", begin, half), of("uid", "'0'", half), of("uid", begin, "'0x1000000000000000g'"), of("uid", begin, "half"), first+" && "+second,
		"shardRange(object.metadata.uid)", "object.metadata.uid", "", " ", "hash(object)")
}

// everywhere returns the path of the Leases in all namespaces. It also returns the given parameters, and before them a
// field selector for the first namespace of the sequence. The servers use only the first field selector.
func everywhere(parameters []string) (string, []string) {
	return "/apis/coordination.k8s.io/v1/leases", append([]string{"fieldSelector=metadata.namespace%3D${ns}"}, parameters...)
}

func (g *gen) list_() step {
	made := step{label: "list", method: "GET"}
	var parameters []string
	if g.odds(2) {
		parameters = g.selecting()
	}
	if g.odds(2) {
		parameters = append(parameters, "limit="+g.mostly(10, g.one("1", "1", "2", "500"), "0", "-1", "x", "", "1.5", "99999999999999999999", "1&limit=2"))
	}
	if g.odds(4) {
		parameters = append(parameters, "continue="+g.mostly(8, g.one("${continue:0}", "${continue:0}", "${continue:1}"), "x", "", "e30", "%20"))
	}
	if g.odds(3) {
		parameters = append(parameters, "resourceVersion="+g.mostly(10, g.one("0", "${rv:l0:0}", "${rv:l0:1}", "${rv:l1:0}", "${list:0}", "${list:1}", ""), "x", "-1", "${rv:l0:0}x", "01"))
		made.settle = true
		if g.odds(25) {
			parameters[len(parameters)-1] = "resourceVersion=${future}"
		}
	}
	if g.odds(4) {
		parameters = append(parameters, "resourceVersionMatch="+g.mostly(10, g.one("Exact", "NotOlderThan"), "", "bad", "exact"))
	}
	if g.odds(20) {
		parameters = append(parameters, g.one("pretty=true", "includeObject=Object", "includeObject=None", "includeObject=Metadata", "includeObject=bad", "sendInitialEvents=true", "sendInitialEvents=false", "allowWatchBookmarks=true",
			"timeoutSeconds=5", "timeoutSeconds=x", "watch=false", "watch=0", "unknown=1", "%zz=1", "timeoutSeconds=-1", "limit=1;x", "timeout=5s"))
	}
	target := g.collection()
	if g.odds(10) {
		target, parameters = everywhere(parameters)
	}
	made.target, made.header = query(target, parameters...), append(g.accept(true), g.agent()...)
	return made
}

func (g *gen) watch() step {
	made := step{label: "watch", method: "GET", watch: true, settle: true}
	parameters := []string{"watch=" + g.mostly(10, "1", "true", "", "yes", "0", "false", "x"), "timeoutSeconds=" + g.mostly(10, "30", "1", "x")}
	if g.odds(3) {
		parameters = append(parameters, g.selecting()...)
	}
	if !g.odds(3) {
		parameters = append(parameters, "resourceVersion="+g.mostly(10, g.one("0", "${rv:l0:0}", "${rv:l0:1}", "${rv:l1:0}", "${list:0}", "${list:1}"), "", "x", "1", "-1"))
	}
	if g.odds(40) {
		parameters = append(parameters, "resourceVersion=${future}")
	}
	if g.odds(5) {
		parameters = append(parameters, "allowWatchBookmarks="+g.one("true", "true", "1", "false", "x"))
	}
	if g.odds(5) {
		parameters = append(parameters, "sendInitialEvents="+g.one("true", "true", "false", "x"))
		if !g.odds(4) {
			parameters = append(parameters, "resourceVersionMatch="+g.mostly(8, "NotOlderThan", "Exact", "bad", ""))
		}
	} else if g.odds(15) {
		parameters = append(parameters, "resourceVersionMatch="+g.one("NotOlderThan", "Exact"))
	}
	if g.odds(15) {
		parameters = append(parameters, g.one("limit=1", "continue=x", "pretty=true", "includeObject=Object", "unknown=1", "limit=x", "includeObject=bad"))
	}
	target := g.collection()
	if g.odds(10) {
		target, parameters = everywhere(parameters)
	}
	made.target, made.header = query(target, parameters...), append(g.accept(true), g.agent()...)
	return made
}

// odd returns a request whose method or path the API mostly does not serve.
func (g *gen) odd() step {
	base, item := "/apis/coordination.k8s.io/v1/namespaces/${ns}/leases", "/apis/coordination.k8s.io/v1/namespaces/${ns}/leases/l0"
	made := step{label: "odd", method: g.one("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND")}
	made.target = g.one(base, item, item+"/status", item+"/", base+"/", "/apis/coordination.k8s.io/v1/leases", "/apis/coordination.k8s.io/v1/leases/l0", "/apis/coordination.k8s.io/v1/namespaces/${ns}/leasez", "/apis/coordination.k8s.io/v1/namespaces//leases", "/apis/coordination.k8s.io/v1//namespaces/${ns}/leases", "/apis/coordination.k8s.io/v1/namespaces/${ns}/leases/l0/x/y",
		"/apis/coordination.k8s.io/v1/namespaces/${ns}", "/apis/coordination.k8s.io/v1/./leases", "/apis/coordination.k8s.io/v1/namespaces/${ns}/leases/../leases")
	if (made.target == "/apis/coordination.k8s.io/v1/leases" || strings.Contains(made.target, "namespaces//leases")) && (made.method == "GET" || made.method == "HEAD") {
		made.target += "?fieldSelector=metadata.namespace%3D${ns}"
	}
	if made.method == "POST" || made.method == "PUT" || made.method == "PATCH" {
		made.body = body{text: g.lease(`"l0"`)}
		made.header = contentType("application/json")
	}
	made.header = append(made.header, g.agent()...)
	return made
}
