package ui

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// funcs are the functions of the templates, besides those of package web. All of them return text that is escaped, or
// HTML made of such text.
func funcs(links web.Links, names *runNames) template.FuncMap {
	return template.FuncMap{
		"link":     links.To,
		"time":     timeHTML,
		"ago":      agoHTML,
		"clock":    clockHTML,
		"hour":     hourHTML,
		"duration": duration, "latency": latency,
		"count":    count,
		"atLeast":  atLeast,
		"tally":    tallyText,
		"plural":   plural,
		"minus":    func(a, b int) int { return a - b },
		"target":   targetText,
		"rateText": rateText, "keyLimits": keyLimitsText, "stepRate": stepRate,
		"limitOrigin": limitOrigin, "queueOrigin": queueOrigin,
		"rate":   perSecond,
		"bytes":  size,
		"status": statusHTML, "runStatus": runStatusHTML,
		"badge":   badge,
		"health":  healthHTML,
		"icon":    icon,
		"short":   short,
		"shortID": func(id string) string { return short(kagzi.RunID(id)) },
		"count64": func(n int64) string { return count(int(n)) },
		"detail":  runDetail, "silent": silentHTML,
		"oneLine": oneLine,
		"lower":   func(v any) string { return strings.ToLower(fmt.Sprint(v)) },
		"due":     due, "dueWord": dueWord, "held": held,
		"prose":  func(text string) template.HTML { return names.prose(links, text) },
		"behind": func(name string) template.HTML { return template.HTML(names.namedLink(links, name)) },
		"gist":   names.gist, "runName": names.html, "runText": names.text,
		"first":       first,
		"dict":        dict,
		"settingName": settingName, "settingText": settingText,
	}
}
