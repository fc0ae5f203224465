package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ax-scheduler/ax/internal/message"
)

const (
	// firstYear to lastNamedYear may be written in a year field, as in Quartz.
	firstYear     = 1970
	lastNamedYear = 2099
	// lastYear ends the search where the year is open. Together with firstYear it
	// covers all fourteen kinds of year (leap or not, first weekday), so that what
	// does not fire within it never does.
	lastYear = 2199

	// maxExpression bounds the work one text can cause; the longest sensible
	// expression (every second listed) has about 400 characters.
	maxExpression = 512
)

// The fields, in the order of the Quartz dialect.
const (
	second = iota
	minute
	hour
	dayOfMonth
	month
	weekday
	year
	fieldCount
)

// fieldRule is what one field allows.
type fieldRule struct {
	en, zh   string
	min, max int
	maxStep  int
	names    []string // for min, min+1, …; matched by three letters or in full
}

var monthNames = []string{ //nolint:gochecknoglobals // a table that nothing writes
	"JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY",
	"AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER",
}

var weekdayNames = []string{"SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY"} //nolint:gochecknoglobals // a table that nothing writes

var quartzRules = [fieldCount]fieldRule{ //nolint:gochecknoglobals // a table that nothing writes
	second:     {"second", "秒", 0, 59, 59, nil},
	minute:     {"minute", "分钟", 0, 59, 59, nil},
	hour:       {"hour", "小时", 0, 23, 23, nil},
	dayOfMonth: {"day-of-month", "日", 1, 31, 31, nil},
	month:      {"month", "月", 1, 12, 12, monthNames},
	weekday:    {"weekday", "周", 1, 7, 7, weekdayNames},
	year:       {"year", "年", firstYear, lastNamedYear, lastNamedYear - firstYear, nil},
}

var unixRules = func() [fieldCount]fieldRule { //nolint:gochecknoglobals // a table that nothing writes
	rules := quartzRules
	rules[weekday].min = 0
	return rules
}()

// form is the shape of one item of a list.
type form uint8

const (
	formAll      form = iota // *
	formNone                 // ?
	formValue                // 5
	formRange                // 1-5
	formOpenStep             // */n, a/n, /n: to the end of the field
	formStep                 // a-b/n
	formLast                 // L, L-n in the day of month
	formNear                 // nW
	formNearLast             // LW, L-nW
	formNth                  // d#n
	formLastOf               // dL in the weekday
)

// item is one item of a list. Weekdays are as written: 1-7 in Quartz, 0-7 in Unix.
type item struct {
	form     form
	from, to int
	step     int // also the n of L-n and d#n
}

// expression is a parsed cron text. It lives only while a schedule is compiled or
// described; what Next needs is the matcher.
type expression struct {
	unix  bool
	rules *[fieldCount]fieldRule
	texts [fieldCount]string // the second of a Unix text is "0", an absent year "*"
	items [fieldCount][]item
	// named is how many fields were written: 5, 6 or 7.
	named int
}

// parser carries the text through parsing, for the sake of its refusals.
type parser struct {
	expression
	text string
}

// parseCron reads a text of 5 (unix) or 6 or 7 fields.
func parseCron(raw string, unix bool) (*expression, *message.Invalid) {
	if refusal := checkCharacters(raw); refusal != nil {
		return nil, refusal
	}
	texts := strings.Fields(raw)
	if len(texts) == 0 {
		return nil, refuseField("expr", codeEmptyExpression, raw, "0 0 12 * * ?",
			"The expression is empty. For every day at noon write `0 0 12 * * ?`.",
			"表达式为空。每天中午 12 点请写 `0 0 12 * * ?`。")
	}
	p := &parser{text: strings.Join(texts, " ")}
	p.unix, p.named = unix, len(texts)
	p.rules = &quartzRules
	if unix {
		p.rules = &unixRules
	}
	switch {
	case unix && len(texts) == 5:
		p.texts[second], p.texts[year] = "0", "*"
		copy(p.texts[minute:], texts)
	case !unix && (len(texts) == 6 || len(texts) == 7):
		p.texts[year] = "*"
		copy(p.texts[:], texts)
	default:
		return nil, p.refuseCount(texts)
	}
	for k := range fieldCount {
		if refusal := p.parseField(k); refusal != nil {
			return nil, refusal
		}
	}
	if refusal := p.checkDays(); refusal != nil {
		return nil, refusal
	}
	return &p.expression, nil
}

// checkCharacters refuses what a Chinese keyboard or a web page slips in: it looks
// right, so the message has to say where it is.
func checkCharacters(raw string) *message.Invalid {
	if utf8.RuneCountInString(raw) > maxExpression {
		return refuseField("expr", codeExpressionLong, "", "",
			fmt.Sprintf("The expression is longer than %d characters.", maxExpression),
			fmt.Sprintf("表达式超过 %d 个字符。", maxExpression))
	}
	position := 0
	for i, r := range raw {
		position++
		if r >= ' ' && r < 0x7f || r == '\t' || r == '\n' || r == '\r' {
			continue
		}
		token := string(r)
		if r == utf8.RuneError {
			token = raw[i : i+1]
			return refuseField("expr", codeCharacter, token, "",
				fmt.Sprintf("character %d is not readable text (UTF-8 is expected).", position),
				fmt.Sprintf("第 %d 个字符无法识别（应为 UTF-8 文本）。", position))
		}
		en, zh, plain := describeRune(r)
		suggestion := plainText(raw)
		if plain == "" {
			return refuseField("expr", codeCharacter, token, suggestion,
				fmt.Sprintf("character %d is %s (U+%04X); it has no place in an expression.", position, en, r),
				fmt.Sprintf("第 %d 个字符是%s（U+%04X），表达式中不能使用。", position, zh, r))
		}
		if plain == " " {
			return refuseField("expr", codeCharacter, token, suggestion,
				fmt.Sprintf("character %d is %s (U+%04X); use a plain space.", position, en, r),
				fmt.Sprintf("第 %d 个字符是%s（U+%04X），请改用普通空格。", position, zh, r))
		}
		return refuseField("expr", codeCharacter, token, suggestion,
			fmt.Sprintf("character %d is %s (U+%04X); use %s.", position, en, r, plain),
			fmt.Sprintf("第 %d 个字符是%s（U+%04X），请改用半角 %s。", position, zh, r, plain))
	}
	return nil
}

// describeRune names a character that is not plain ASCII, and gives the plain one
// that was meant, or "".
func describeRune(r rune) (en, zh, plain string) {
	switch r {
	case '？':
		return "a full-width question mark", "全角问号", "?"
	case '＊':
		return "a full-width asterisk", "全角星号", "*"
	case '，':
		return "a full-width comma", "全角逗号", ","
	case '、':
		return "an ideographic comma", "顿号", ","
	case '／':
		return "a full-width slash", "全角斜杠", "/"
	case '－':
		return "a full-width hyphen", "全角连字符", "-"
	case '＃':
		return "a full-width number sign", "全角井号", "#"
	case '＠':
		return "a full-width at sign", "全角 @ 号", "@"
	case '–', '—', '‐', '‑', '−':
		return "a dash that is not the plain hyphen", "非半角连字符的横线", "-"
	case '\u00a0':
		return "a no-break space", "不换行空格", " "
	case '\u3000':
		return "a full-width space", "全角空格", " "
	case '\u2002', '\u2003', '\u2009', '\u202f':
		return "a typographic space", "排版空格", " "
	case '\u200b', '\u200c', '\u200d', '\ufeff', '\u2060':
		return "an invisible character", "不可见字符", ""
	}
	switch {
	case r >= '０' && r <= '９':
		return "a full-width digit", "全角数字", string('0' + r - '０')
	case r >= 'Ａ' && r <= 'Ｚ':
		return "a full-width letter", "全角字母", string('A' + r - 'Ａ')
	case r >= 'ａ' && r <= 'ｚ':
		return "a full-width letter", "全角字母", string('a' + r - 'ａ')
	case r < ' ' || r == 0x7f:
		return "a control character", "控制字符", ""
	}
	return "`" + string(r) + "`", "“" + string(r) + "”", ""
}

// plainText is raw with its look-alikes replaced and the rest of its foreign
// characters dropped, or "" when it is then no better.
func plainText(raw string) string {
	var b strings.Builder
	for _, r := range raw {
		if r >= ' ' && r < 0x7f || r == '\t' || r == '\n' || r == '\r' {
			b.WriteRune(r)
			continue
		}
		_, _, plain := describeRune(r)
		b.WriteString(plain)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func (p *parser) refuseCount(texts []string) *message.Invalid {
	n := len(texts)
	if p.unix {
		suggestion := ""
		if n == 6 || n == 7 {
			suggestion = p.text
			return refuseField("expr", codeFieldCount, p.text, suggestion,
				fmt.Sprintf("5 fields are needed (minute hour day month weekday); got %d. For fields that start with the second choose dialect Quartz.", n),
				fmt.Sprintf("需要 5 个字段（分 时 日 月 周），当前为 %d 个。以秒开头的写法请将方言选为 Quartz。", n))
		}
		return refuseField("expr", codeFieldCount, p.text, suggestion,
			fmt.Sprintf("5 fields are needed (minute hour day month weekday); got %d.", n),
			fmt.Sprintf("需要 5 个字段（分 时 日 月 周），当前为 %d 个。", n))
	}
	if n == 5 {
		quartz, second := unixToQuartz(texts)
		if second != "" {
			return refuseField("expr", codeUnixFields, p.text, quartz,
				fmt.Sprintf("5 fields look like a Unix crontab. In Quartz form it takes two triggers: `%s` and `%s`; or choose dialect Unix.", quartz, second),
				fmt.Sprintf("5 个字段是 Unix crontab 写法。Quartz 需要两个触发器：`%s` 与 `%s`，或将方言选为 Unix。", quartz, second))
		}
		if quartz != "" {
			return refuseField("expr", codeUnixFields, p.text, quartz,
				fmt.Sprintf("5 fields look like a Unix crontab. In Quartz form: `%s`; or choose dialect Unix.", quartz),
				fmt.Sprintf("5 个字段是 Unix crontab 写法。Quartz 写法为 `%s`，或将方言选为 Unix。", quartz))
		}
	}
	return refuseField("expr", codeFieldCount, p.text, "",
		fmt.Sprintf("6 or 7 fields are needed (second minute hour day month weekday [year]); got %d.", n),
		fmt.Sprintf("需要 6 或 7 个字段（秒 分 时 日 月 周 [年]），当前为 %d 个。", n))
}

// unixToQuartz writes a Unix text in Quartz form. Where Unix joins its two day
// fields with OR there is no single form and second holds the other half; both are
// empty for a text that is no Unix text either.
func unixToQuartz(texts []string) (first, second string) {
	texts = append([]string(nil), texts...)
	for _, k := range []int{2, 4} {
		if texts[k] == "?" { // five fields with a ? are Quartz without its second
			texts[k] = "*"
		}
	}
	e, refusal := parseCron(strings.Join(texts, " "), true)
	if refusal != nil {
		return "", ""
	}
	dom, dow := e.texts[dayOfMonth], e.quartzWeekdays()
	form := func(dom, dow string) string {
		return strings.Join([]string{"0", e.texts[minute], e.texts[hour], dom, e.texts[month], dow}, " ")
	}
	switch {
	case dow == "*":
		return form(dom, "?"), ""
	case dom == "*":
		return form("?", dow), ""
	case strings.HasPrefix(dom, "*") || strings.HasPrefix(dow, "*"):
		return "", "" // AND has no Quartz form at all
	}
	return form(dom, "?"), form("?", dow)
}

// quartzWeekdays is the weekday field of a Unix text in Quartz numbers.
func (e *expression) quartzWeekdays() string {
	out := make([]string, 0, len(e.items[weekday]))
	for i, text := range strings.Split(e.texts[weekday], ",") {
		it := e.items[weekday][i]
		named := strings.ContainsFunc(text, func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' })
		switch {
		case named || it.form == formAll:
			out = append(out, text)
		case it.form == formValue:
			out = append(out, strconv.Itoa(it.from%7+1))
		case it.form == formRange:
			out = append(out, fmt.Sprintf("%d-%d", it.from%7+1, it.to%7+1))
		case it.form == formStep:
			out = append(out, fmt.Sprintf("%d-%d/%d", it.from%7+1, it.to%7+1, it.step))
		case strings.HasPrefix(text, "*"):
			out = append(out, text)
		default:
			out = append(out, fmt.Sprintf("%d/%d", it.from%7+1, it.step))
		}
	}
	return strings.Join(out, ",")
}

// refuse speaks about field k: its name, then the reason.
func (p *parser) refuse(k int, code, token, suggestion, en, zh string) *message.Invalid {
	return refuseField("expr", code, token, suggestion, p.rules[k].en+": "+en, p.rules[k].zh+"："+zh)
}

// with is the whole text with field k replaced: the usual suggestion.
func (p *parser) with(k int, text string) string {
	texts := p.texts
	texts[k] = text
	return p.join(texts)
}

func (e *expression) join(texts [fieldCount]string) string {
	switch e.named {
	case 5:
		return strings.Join(texts[minute:year], " ")
	case 6:
		return strings.Join(texts[:year], " ")
	}
	return strings.Join(texts[:], " ")
}

// repair is the text with token in field k replaced by with.
func (p *parser) repair(k int, token, with string) string {
	list := strings.Split(p.texts[k], ",")
	for i := range list {
		if list[i] == token {
			list[i] = with
		}
	}
	return p.with(k, strings.Join(list, ","))
}

func (p *parser) parseField(k int) *message.Invalid {
	for token := range strings.SplitSeq(p.texts[k], ",") {
		if token == "" {
			var kept []string
			for other := range strings.SplitSeq(p.texts[k], ",") {
				if other != "" {
					kept = append(kept, other)
				}
			}
			suggestion := ""
			if len(kept) > 0 {
				suggestion = p.with(k, strings.Join(kept, ","))
			}
			return p.refuse(k, codeEmptyItem, p.texts[k], suggestion,
				fmt.Sprintf("a comma in %s has nothing on one side.", p.texts[k]),
				fmt.Sprintf("%s 中的逗号一侧没有内容。", p.texts[k]))
		}
		it, refusal := p.parseItem(k, token)
		if refusal != nil {
			return refusal
		}
		p.items[k] = append(p.items[k], it)
	}
	return nil
}

func (p *parser) parseItem(k int, token string) (item, *message.Invalid) {
	rule := &p.rules[k]
	switch {
	case token == "*":
		return item{form: formAll, from: rule.min, to: rule.max, step: 1}, nil
	case strings.Contains(token, "?"):
		return p.parseQuestion(k, token)
	}
	if !p.unix && k == dayOfMonth && (token[0] == 'L' || token[0] == 'l') {
		return p.parseLast(token)
	}
	if !p.unix && k == dayOfMonth && strings.ContainsAny(token, "Ww") {
		return p.parseNear(token)
	}
	if !p.unix && k == dayOfMonth && strings.ContainsAny(token, "Ll") {
		return item{}, p.refuse(k, codeLastDay, token, p.repair(k, token, "L"),
			fmt.Sprintf("%s is not a day; L is the last day, L-3 three days before it.", token),
			fmt.Sprintf("%s 不是有效的日；L 表示最后一天，L-3 表示倒数第四天。", token))
	}
	if !p.unix && k == weekday {
		if strings.Contains(token, "#") {
			return p.parseNth(token)
		}
		if token == "L" || token == "l" {
			return item{form: formValue, from: 7, to: 7, step: 1}, nil
		}
		if base, ok := strings.CutSuffix(strings.ToUpper(token), "L"); ok {
			if strings.ContainsAny(base, "-/") {
				return item{}, p.refuse(k, codeLastDay, token, "",
					fmt.Sprintf("L in %s goes with one weekday, such as 6L or FRIL.", token),
					fmt.Sprintf("%s 中的 L 只能跟在单个周几之后，例如 6L 或 FRIL。", token))
			}
			n, refusal := p.parseValue(k, token, token[:len(base)])
			return item{form: formLastOf, from: n, to: n}, refusal
		}
	}
	base, stepText, stepped := strings.Cut(token, "/")
	step := 1
	if stepped {
		var refusal *message.Invalid
		if step, refusal = p.parseStep(k, token, base, stepText); refusal != nil {
			return item{}, refusal
		}
	}
	if base == "*" || base == "" && !p.unix {
		return item{form: formOpenStep, from: rule.min, to: p.top(k), step: step}, nil
	}
	if !strings.Contains(base, "-") {
		n, refusal := p.parseValue(k, token, base)
		if refusal != nil {
			return item{}, refusal
		}
		if stepped {
			return item{form: formOpenStep, from: n, to: max(n, p.top(k)), step: step}, nil
		}
		return item{form: formValue, from: n, to: n, step: 1}, nil
	}
	fromText, toText, _ := strings.Cut(base, "-")
	if fromText == "" || toText == "" || strings.Contains(toText, "-") {
		return item{}, p.refuse(k, codeBadRange, token, "",
			fmt.Sprintf("%s is not a range; write two values with one - between them, such as %d-%d.", token, rule.min, rule.max),
			fmt.Sprintf("%s 不是有效的范围；请写两个值，中间一个 -，例如 %d-%d。", token, rule.min, rule.max))
	}
	from, refusal := p.parseValue(k, token, fromText)
	if refusal != nil {
		return item{}, refusal
	}
	to, refusal := p.parseValue(k, token, toText)
	if refusal != nil {
		return item{}, refusal
	}
	if from > to && (k == year || p.unix && k != weekday) {
		suggestion := p.repair(k, token, fmt.Sprintf("%d-%d,%d-%d", from, rule.max, rule.min, to))
		if k == year || stepped {
			suggestion = ""
		}
		return item{}, p.refuse(k, codeBadRange, token, suggestion,
			fmt.Sprintf("the range %s ends before it starts.", token),
			fmt.Sprintf("范围 %s 的终点在起点之前。", token))
	}
	if stepped {
		return item{form: formStep, from: from, to: to, step: step}, nil
	}
	return item{form: formRange, from: from, to: to, step: 1}, nil
}

// top is where an open step of field k ends. A Unix week ends on Saturday, 6: the 7
// is only another Sunday.
func (p *parser) top(k int) int {
	if p.unix && k == weekday {
		return 6
	}
	return p.rules[k].max
}

func (p *parser) parseQuestion(k int, token string) (item, *message.Invalid) {
	isDay := k == dayOfMonth || k == weekday
	if !p.unix && isDay && p.texts[k] == "?" {
		return item{form: formNone}, nil
	}
	suggestion := p.repair(k, token, "*")
	if p.unix {
		return item{}, p.refuse(k, codeQuestionMark, token, suggestion,
			"? is not used in a Unix crontab; write *.",
			"Unix crontab 中不用 ?，请写 *。")
	}
	if isDay {
		return item{}, p.refuse(k, codeQuestionMark, token, p.with(k, "?"),
			fmt.Sprintf("? stands alone, not as in %s.", p.texts[k]),
			fmt.Sprintf("? 只能单独使用，不能写成 %s。", p.texts[k]))
	}
	return item{}, p.refuse(k, codeQuestionMark, token, suggestion,
		"? may stand only in day-of-month or weekday; write *.",
		"? 只能用于日或周，请写 *。")
}

// parseLast reads L, L-n, LW and L-nW in the day of month.
func (p *parser) parseLast(token string) (item, *message.Invalid) {
	rest := strings.ToUpper(token)[1:]
	it := item{form: formLast}
	if cut, ok := strings.CutSuffix(rest, "W"); ok {
		it.form, rest = formNearLast, cut
	}
	if rest == "" {
		return it, nil
	}
	digits, ok := strings.CutPrefix(rest, "-")
	n, isNumber := number(digits)
	if !ok || !isNumber {
		return item{}, p.refuse(dayOfMonth, codeLastDay, token, p.repair(dayOfMonth, token, "L"),
			fmt.Sprintf("%s is not a day; L is the last day, L-3 three days before it, LW the last weekday from Monday to Friday.", token),
			fmt.Sprintf("%s 不是有效的日；L 表示最后一天，L-3 表示倒数第四天，LW 表示最后一个工作日。", token))
	}
	if n > 30 {
		return item{}, p.refuse(dayOfMonth, codeOutOfRange, token, "",
			fmt.Sprintf("%d in %s is out of range 0-30.", n, token),
			fmt.Sprintf("%s 中的 %d 超出范围 0-30。", token, n))
	}
	it.step = n
	return it, nil
}

// parseNear reads nW in the day of month.
func (p *parser) parseNear(token string) (item, *message.Invalid) {
	digits, ok := strings.CutSuffix(strings.ToUpper(token), "W")
	if n, isNumber := number(digits); ok && isNumber {
		if n < 1 || n > 31 {
			return item{}, p.refuseRange(dayOfMonth, digits)
		}
		return item{form: formNear, from: n, to: n}, nil
	}
	return item{}, p.refuse(dayOfMonth, codeNearestWeekday, token, "",
		fmt.Sprintf("W in %s goes with one day, such as 15W (Monday to Friday nearest to the 15th) or LW.", token),
		fmt.Sprintf("%s 中的 W 只能跟在单个日之后，例如 15W（离 15 日最近的工作日）或 LW。", token))
}

// parseNth reads d#n in the weekday.
func (p *parser) parseNth(token string) (item, *message.Invalid) {
	day, digits, _ := strings.Cut(token, "#")
	n, isNumber := number(digits)
	if !isNumber || n < 1 || n > 5 || day == "" || strings.ContainsAny(day, "-/*") {
		return item{}, p.refuse(weekday, codeNthWeekday, token, "",
			fmt.Sprintf("%s needs one weekday before # and a number 1-5 after it, such as 6#3 or FRI#3 (the third Friday).", token),
			fmt.Sprintf("%s 的 # 前应为单个周几，# 后应为 1-5，例如 6#3 或 FRI#3（第三个周五）。", token))
	}
	d, refusal := p.parseValue(weekday, token, day)
	return item{form: formNth, from: d, to: d, step: n}, refusal
}

func (p *parser) parseStep(k int, token, base, text string) (int, *message.Invalid) {
	rule := &p.rules[k]
	step, isNumber := number(text)
	if !isNumber {
		return 0, p.refuse(k, codeBadStep, token, "",
			fmt.Sprintf("/ in %s must be followed by a whole number 1-%d.", token, rule.maxStep),
			fmt.Sprintf("%s 中的 / 之后应为 1-%d 的整数。", token, rule.maxStep))
	}
	if step == 0 {
		single := base
		if base == "*" || base == "" || strings.Contains(base, "-") {
			single = strconv.Itoa(rule.min)
		}
		return 0, p.refuse(k, codeBadStep, token, p.repair(k, token, single),
			fmt.Sprintf("the step in %s is 0 and never moves; for the single value write %s.", token, single),
			fmt.Sprintf("%s 的步长为 0，不会前进；若只要单个值请写 %s。", token, single))
	}
	if step > rule.maxStep {
		suggestion, en, zh := p.wideStep(k, base, step)
		return 0, p.refuse(k, codeBadStep, token, suggestion,
			fmt.Sprintf("step %d in %s is out of range 1-%d.%s", step, token, rule.maxStep, en),
			fmt.Sprintf("%s 的步长 %d 超出范围 1-%d。%s", token, step, rule.maxStep, zh))
	}
	return step, nil
}

// wideStep proposes what was meant by a step beyond its field: 60 minutes are an
// hour, 90 minutes an interval.
func (p *parser) wideStep(k int, base string, step int) (suggestion, en, zh string) {
	if k != second && k != minute || p.unix && k == second {
		return "", "", ""
	}
	size := 60
	if step%size == 0 && p.texts[k+1] == "*" {
		texts := p.texts
		texts[k] = "0"
		if n, ok := number(base); ok && n < size {
			texts[k] = base
		}
		if step > size && step/size <= p.rules[k+1].maxStep {
			texts[k+1] = fmt.Sprintf("0/%d", step/size)
		}
		if step == size || texts[k+1] != "*" {
			suggestion = p.join(texts)
			unitEN, unitZH := "minute", "分钟"
			if k == minute {
				unitEN, unitZH = "hour", "小时"
			}
			if step == size {
				return suggestion, fmt.Sprintf(" For every %s write `%s`.", unitEN, suggestion), fmt.Sprintf("每%s一次请写 `%s`。", unitZH, suggestion)
			}
			return suggestion, fmt.Sprintf(" For every %d %ss write `%s`.", step/size, unitEN, suggestion),
				fmt.Sprintf("每 %d %s一次请写 `%s`。", step/size, unitZH, suggestion)
		}
	}
	unit := "s"
	if k == minute {
		unit = "m"
	}
	every := fmt.Sprintf("@every %d%s", step, unit)
	return every, fmt.Sprintf(" For a longer interval write `%s`.", every), fmt.Sprintf("更长的间隔请写 `%s`。", every)
}

// parseValue reads one number or name of field k.
func (p *parser) parseValue(k int, token, text string) (int, *message.Invalid) {
	rule := &p.rules[k]
	if text != "" && text[0] >= '0' && text[0] <= '9' {
		n, ok := number(text)
		if !ok {
			return 0, p.refuse(k, codeBadNumber, token, "",
				fmt.Sprintf("%s is not a whole number.", text),
				fmt.Sprintf("%s 不是整数。", text))
		}
		if n < rule.min || n > rule.max {
			return 0, p.refuseRange(k, text)
		}
		return n, nil
	}
	if rule.names == nil {
		return 0, p.refuse(k, codeBadNumber, token, "",
			fmt.Sprintf("%s is not a number %d-%d.", token, rule.min, rule.max),
			fmt.Sprintf("%s 不是 %d-%d 的数字。", token, rule.min, rule.max))
	}
	upper := strings.ToUpper(text)
	for i, name := range rule.names {
		if upper == name || upper == name[:3] {
			return rule.min + i, nil
		}
	}
	suggestion := ""
	for _, name := range rule.names {
		if len(upper) >= 2 && (strings.HasPrefix(name, upper) || strings.HasPrefix(upper, name[:3]) || distance(upper, name) <= 2) {
			suggestion = p.with(k, strings.Replace(p.texts[k], text, name[:3], 1))
			break
		}
	}
	first, last := rule.names[0][:3], rule.names[len(rule.names)-1][:3]
	return 0, p.refuse(k, codeUnknownName, text, suggestion,
		fmt.Sprintf("%s is not known; write %d-%d or %s-%s.", text, rule.min, rule.max, first, last),
		fmt.Sprintf("无法识别 %s；请写 %d-%d 或 %s-%s。", text, rule.min, rule.max, first, last))
}

func (p *parser) refuseRange(k int, text string) *message.Invalid {
	rule := &p.rules[k]
	en := fmt.Sprintf("%s is out of range %d-%d.", text, rule.min, rule.max)
	zh := fmt.Sprintf("%s 超出范围 %d-%d。", text, rule.min, rule.max)
	suggestion := ""
	n, _ := number(text)
	switch {
	case k == hour && n == 24:
		en, zh = en+" For midnight write 0.", zh+"午夜请写 0。"
		suggestion = p.repair(k, text, "0")
	case k == weekday && n == 0:
		en, zh = en+" For Sunday write 1 or SUN.", zh+"周日请写 1 或 SUN。"
		suggestion = p.repair(k, text, "SUN")
	case k == dayOfMonth && n == 0:
		en, zh = en+" The first day is 1.", zh+"第一天是 1。"
		suggestion = p.repair(k, text, "1")
	case (k == minute || k == second) && n == 60:
		suggestion = p.repair(k, text, "0")
	}
	if suggestion == p.text {
		suggestion = ""
	}
	return p.refuse(k, codeOutOfRange, text, suggestion, en, zh)
}

// checkDays holds the Quartz rule that one of the two day fields is ?.
func (p *parser) checkDays() *message.Invalid {
	if p.unix {
		return nil
	}
	domText, dowText := p.texts[dayOfMonth], p.texts[weekday]
	if domText == "?" && dowText == "?" {
		suggestion := p.with(dayOfMonth, "*")
		return refuseField("expr", codeBothDays, "?", suggestion,
			fmt.Sprintf("? may stand in one of the two day fields only. For every day write `%s`.", suggestion),
			fmt.Sprintf("? 只能出现在日、周两个字段之一。每天请写 `%s`。", suggestion))
	}
	if domText == "?" || dowText == "?" {
		return nil
	}
	byMonth, byWeek := p.with(weekday, "?"), p.with(dayOfMonth, "?")
	en, zh := "day-of-month and weekday cannot both be set; put ? in one.", "日与周不能同时指定，其中一个请写 ?。"
	switch {
	case dowText == "*":
		return refuseField("expr", codeBothDays, dowText, byMonth,
			en+fmt.Sprintf(" Did you mean `%s`?", byMonth), zh+fmt.Sprintf("是否想写 `%s`？", byMonth))
	case domText != "*":
		return refuseField("expr", codeBothDays, domText+" … "+dowText, byMonth,
			en+fmt.Sprintf(" For either day use two triggers, `%s` and `%s`; both at once is not possible in one expression.", byMonth, byWeek),
			zh+fmt.Sprintf("满足其一请用两个触发器：`%s` 与 `%s`；同时满足无法用一个表达式表示。", byMonth, byWeek))
	}
	asQuartz := p.weekdayWords(byWeek)
	// Somebody who writes * beside a number most likely counts as Unix does.
	shifted := ""
	if e, refusal := parseCron(strings.Join([]string{"0", "0", "*", "*", dowText}, " "), true); refusal == nil {
		shifted = e.quartzWeekdays()
	}
	if shifted == "" || shifted == dowText {
		return refuseField("expr", codeBothDays, dowText, byWeek,
			en+fmt.Sprintf(" Did you mean `%s` (%s)?", byWeek, asQuartz.EN), zh+fmt.Sprintf("是否想写 `%s`（%s）？", byWeek, asQuartz.ZH))
	}
	texts := p.texts
	texts[dayOfMonth], texts[weekday] = "?", shifted
	asUnix := p.join(texts)
	unixWords := p.weekdayWords(asUnix)
	return refuseField("expr", codeBothDays, dowText, byWeek,
		en+fmt.Sprintf(" Did you mean `%s` (%s) or `%s` (%s)?", byWeek, asQuartz.EN, asUnix, unixWords.EN),
		zh+fmt.Sprintf("是否想写 `%s`（%s）或 `%s`（%s）？", byWeek, asQuartz.ZH, asUnix, unixWords.ZH))
}

// weekdayWords says the weekdays of a Quartz text.
func (p *parser) weekdayWords(text string) message.Text {
	e, refusal := parseCron(text, false)
	if refusal != nil {
		return message.Text{}
	}
	return e.weekdayWords(false)
}

// number reads digits and nothing else; what has more than four is beyond every field.
func number(text string) (int, bool) {
	if text == "" || len(text) > 4 {
		// A longer row of digits is still a number, only too large for any field.
		if len(text) > 4 && strings.Trim(text, "0123456789") == "" {
			return 10000, true
		}
		return 0, false
	}
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = n*10 + int(text[i]-'0')
	}
	return n, true
}
