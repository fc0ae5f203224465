package api

import (
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/trigger"
)

type reasonView struct {
	Code   string `json:"code"`
	EN     string `json:"en"`
	ZH     string `json:"zh"`
	Detail string `json:"detail"`
}

// reasonOf puts a reason code into words; nil for none.
func reasonOf(code, detail string) *reasonView {
	if code == "" {
		return nil
	}
	t, ok := reasons()[code]
	if !ok {
		t = message.Text{EN: code, ZH: code}
	}
	return &reasonView{Code: code, EN: t.EN, ZH: t.ZH, Detail: detail}
}

func textBusy() message.Text {
	return message.Text{EN: "Too many streams are open; try again in a moment.", ZH: "打开的实时输出过多，请稍后重试。"}
}

// reasons has a sentence in both languages for every reason code that a batch, an
// execution or an executor can carry.
func reasons() map[string]message.Text {
	return map[string]message.Text{
		outcome.ReasonNoExecutor:                 {EN: "No executor of the app is online.", ZH: "该应用没有在线的执行器。"},
		outcome.ReasonNoHandler:                  {EN: "No online executor of the app has this handler.", ZH: "该应用的在线执行器都没有此处理器。"},
		outcome.ReasonFull:                       {EN: "The executor's pool and queue are full.", ZH: "执行器的线程池与队列已满。"},
		outcome.ReasonDraining:                   {EN: "The executor is shutting down.", ZH: "执行器正在下线。"},
		outcome.ReasonNoMatch:                    {EN: "No executor fits the job's selector or rule.", ZH: "没有执行器符合任务的选择器或路由规则。"},
		outcome.ReasonCapacity:                   {EN: "No executor has the resources free that the job declares.", ZH: "没有执行器具备任务声明的空闲资源。"},
		outcome.ReasonExecutorLimit:              {EN: "Every executor has as many as its limit allows.", ZH: "每个执行器上的数量均已达限额。"},
		"waiting_" + outcome.ReasonNoMatch:       {EN: "It waits: no executor fits the job's selector or rule.", ZH: "等待中：没有执行器符合任务的选择器或路由规则。"},
		"waiting_" + outcome.ReasonCapacity:      {EN: "It waits: no executor has the resources free that the job declares.", ZH: "等待中：没有执行器具备任务声明的空闲资源。"},
		"waiting_" + outcome.ReasonExecutorLimit: {EN: "It waits: every executor has as many as its limit allows.", ZH: "等待中：每个执行器上的数量均已达限额。"},
		ready.ReasonLimit:                        {EN: "It waits: as many as the limit in the detail allows run or have just started.", ZH: "等待中：运行数或启动速率已达详情所示的限额。"},
		ready.ReasonOverlap:                      {EN: "It waits until an earlier batch of the job has ended.", ZH: "等待中：该任务较早的批次尚未结束。"},
		ready.ReasonUnstopped:                    {EN: "It waits: an earlier batch of the job was stopped, nobody confirmed that it did, and it may still run.", ZH: "等待中：该任务较早的批次已要求停止但未确认，可能仍在运行。"},
		ready.ReasonTurn:                         {EN: "It waits for its turn.", ZH: "等待中：正在排队。"},
		outcome.ReasonDatabase:                   {EN: "What belongs to it could not be read from the database; it is tried again.", ZH: "暂时无法从数据库读取其内容，稍后重试。"},
		outcome.ReasonRescheduled:                {EN: "It was moved to another time and goes on under the batchId in the detail.", ZH: "已改期，以详情中的批次号继续。"},
		outcome.ReasonJobDeleted:                 {EN: "Its job was deleted while it waited.", ZH: "等待期间其任务已被删除。"},
		reasonFiltered:                           {EN: "No event trigger's filter let it pass.", ZH: "事件未通过任何事件触发器的过滤条件。"},
		outcome.ReasonGone:                       {EN: "The executor's process is gone.", ZH: "执行器进程已不存在。"},
		outcome.ReasonUnheard:                    {EN: "The executor does not know this execution.", ZH: "执行器没有此执行记录。"},
		outcome.ReasonLease:                      {EN: "The executor was silent until its lease lapsed.", ZH: "执行器长时间无响应，租约已到期。"},
		outcome.ReasonStale:                      {EN: "The executor knows a newer attempt.", ZH: "执行器已有更新的尝试。"},
		outcome.ReasonTimeout:                    {EN: "It ran longer than its time limit.", ZH: "运行超过时间限制。"},
		outcome.ReasonCancelled:                  {EN: "It was cancelled by hand.", ZH: "已被手动取消。"},
		outcome.ReasonCovered:                    {EN: "It was stopped to make room for the next firing (policy cover).", ZH: "为下一次触发让位而停止（覆盖策略）。"},
		outcome.ReasonFailed:                     {EN: "The handler failed.", ZH: "处理器执行失败。"},
		outcome.ReasonShards:                     {EN: "Some shards failed.", ZH: "部分分片失败。"},
		outcome.ReasonQuorum:                     {EN: "Some shards failed; enough succeeded for the job's quorum.", ZH: "部分分片失败，但成功数已达到任务的法定比例。"},
		outcome.ReasonMoves:                      {EN: "It was moved to other executors too often.", ZH: "转移到其他执行器的次数过多。"},
		outcome.ReasonWaitTimeout:                {EN: "It waited too long for a free executor.", ZH: "等待空闲执行器的时间过长。"},
		outcome.ReasonExecutorErr:                {EN: "The executor's answer was not understood.", ZH: "无法理解执行器的应答。"},
		outcome.ReasonSecret:                     {EN: "A secret that its parameters name is not there, or can not be opened with this server's master key; write it again, then retry.", ZH: "参数引用的密钥不存在，或无法用本服务器的主密钥解开；请重新写入后再重试。"},
		outcome.ReasonClock:                      {EN: "The clock went back before it was sent; it waits for its time again.", ZH: "发送前时钟回拨，重新等待其计划时间。"},
		"waiting_" + outcome.ReasonNoExecutor:    {EN: "It waits: no executor of the app is online.", ZH: "等待中：该应用没有在线的执行器。"},
		"waiting_" + outcome.ReasonNoHandler:     {EN: "It waits: no online executor has this handler.", ZH: "等待中：在线执行器都没有此处理器。"},
		"waiting_" + outcome.ReasonFull:          {EN: "It waits: every executor of the app is full.", ZH: "等待中：该应用的执行器均已满。"},
		"move_" + store.MoveFree:                 {EN: "Nobody owned it.", ZH: "无人负责。"},
		"move_" + store.MoveExpired:              {EN: "Its owner was not heard of any more.", ZH: "原负责副本失联。"},
		"move_" + store.MoveBalance:              {EN: "Its owner had more than its share.", ZH: "负载均衡。"},
		"move_" + store.MoveDrain:                {EN: "Its owner takes none any more.", ZH: "原负责副本正在排空。"},
		"move_" + store.MoveAsked:                {EN: "Somebody wanted it there.", ZH: "人工指定。"},
		"retry_waits":                            {EN: "The last attempt failed; the next one waits for its time.", ZH: "上次尝试失败，等待下一次重试。"},
		"retried_by_hand":                        {EN: "Failed shards are tried again by hand.", ZH: "已手动重试失败的分片。"},
		ready.ReasonStillRunning:                 {EN: "Skipped: the previous batch was still running.", ZH: "已跳过：上一批次仍在运行。"},
		ready.ReasonQueueFull:                    {EN: "Skipped: enough batches of this job wait already.", ZH: "已跳过：该任务等待中的批次已达上限。"},
		ready.ReasonCovered:                      {EN: "Skipped: a newer firing took its place in the queue.", ZH: "已跳过：更新的触发取代了它的等待位置。"},
		trigger.ReasonMisfireOnce:                {EN: "Late: the newest firing that was missed is run once.", ZH: "补偿执行：错过的触发中最新一次补执行一次。"},
		trigger.ReasonMisfireAll:                 {EN: "Late: firings that were missed are caught up with.", ZH: "补偿执行：补执行错过的触发。"},
		trigger.ReasonMissed:                     {EN: "Missed: its time passed while nobody could fire it.", ZH: "已错过：触发时间内调度不可用。"},
		trigger.ReasonMissedClock:                {EN: "Missed: the clock was turned forward over its time.", ZH: "已错过：时钟向前跳变，越过了触发时间。"},
		ready.ReasonMissedWindow:                 {EN: "Missed: it could not start before its latest start (misfire window): the drain rate did not let it, or no executor took it in time.", ZH: "已错过：未能在最晚启动时间（补偿窗口）前启动：追补速率不允许，或没有执行器及时接收。"},
		reasonBackfill:                           {EN: "Cancelled: somebody cancelled what was left of the backfill, or deleted the job.", ZH: "已取消：剩余的补数被取消，或任务被删除。"},
		reasonDropped:                            {EN: "Missed: an operator gave the backlog up.", ZH: "已错过：操作员放弃了积压的触发。"},
		reasonPaused:                             {EN: "Missed: the job was switched off before the backlog reached it.", ZH: "已错过：追补到此次触发之前，任务已停用。"},
		registry.ReasonChallenge:                 {EN: "Its address is being proven.", ZH: "正在验证地址。"},
		registry.ReasonUnreachable:               {EN: "The server can not reach its address; check that it is the host's address and a mapped port.", ZH: "服务器无法访问该地址，请检查是否为宿主机地址与映射端口。"},
		registry.ReasonBlocked:                   {EN: "Its address is barred by the namespace's egress policy; an administrator can allow it.", ZH: "该地址被命名空间的出口策略禁止，可由管理员放行。"},
		registry.ReasonForeign:                   {EN: "Somebody else answers at its address.", ZH: "该地址的应答者不是此执行器。"},
		registry.ReasonBadAddress:                {EN: "Its address is not understood; write http://host:port.", ZH: "地址格式错误，请写 http://host:port。"},
		registry.ReasonSilent:                    {EN: "Its heartbeats do not arrive.", ZH: "未收到心跳。"},
		registry.ReasonLeft:                      {EN: "It signed off.", ZH: "已主动下线。"},
		registry.ReasonDraining:                  {EN: "It takes no new work.", ZH: "不再接收新任务。"},

		outcome.ReasonJobDisabled:            {EN: "Its job was switched off while the next attempt waited.", ZH: "等待重试期间其任务已被停用。"},
		outcome.ReasonQuarantined:            {EN: "Executors ended one after the other while they ran it; it was not sent to another one.", ZH: "运行它的执行器接连退出，已隔离，不再派发给其他执行器。"},
		outcome.ReasonUnstopped:              {EN: "The attempt before would not stop and may still run.", ZH: "上一次尝试未能确认停止，可能仍在运行。"},
		"waiting_" + outcome.ReasonUnstopped: {EN: "It waits: the attempt before would not stop and may still run.", ZH: "等待中：上一次尝试未能确认停止，可能仍在运行。"},

		registry.ReasonDeaf:    {EN: "It reports, but does not answer requests to run something; it gets its next chance in a while.", ZH: "心跳正常，但不应答执行请求，稍后再试。"},
		registry.ReasonDrained: {EN: "An operator keeps it from new work.", ZH: "已被操作员摘流，不再接收新任务。"},
		registry.ReasonStorm:   {EN: "It is silent, and too many executors went at once: it is not removed, and what it runs is not started elsewhere.", ZH: "心跳中断，但同时失联的执行器过多：暂不移除，也不在别处重启其任务。"},
		registry.ReasonVersion: {EN: "It speaks a later version of the protocol than this server; upgrade the server first.", ZH: "执行器的协议版本高于服务器，请先升级服务器。"},

		// registry.ReasonGone has the same code as nothing above: a process that is gone.
		registry.ReasonGone: {EN: "Its process is gone.", ZH: "进程已不存在。"},
	}
}

// bars has a sentence for every reason why routing passes an executor over.
func bars() map[string]message.Text {
	return map[string]message.Text{
		routing.BarSuspect:  {EN: "Its heartbeats do not arrive.", ZH: "未收到心跳。"},
		routing.BarDraining: {EN: "It takes no new work.", ZH: "不再接收新任务。"},
		routing.BarOffline:  {EN: "It is not online.", ZH: "未在线。"},
		routing.BarHandler:  {EN: "It does not have the handler.", ZH: "没有此处理器。"},
		routing.BarFull:     {EN: "Its pool and queue are full.", ZH: "线程池与队列已满。"},
		routing.BarBefore:   {EN: "An earlier attempt failed there, was refused or did not reach it.", ZH: "之前的尝试在此失败、被拒绝或未送达。"},
		routing.BarLimit:    {EN: "It has as many as its limit allows.", ZH: "数量已达限额。"},
		routing.BarSelector: {EN: "The selector does not let it pass.", ZH: "不符合选择器。"},
		routing.BarRule:     {EN: "The rule does not let it pass.", ZH: "不符合路由规则。"},
		routing.BarRuleErr:  {EN: "The rule could not be evaluated on it.", ZH: "无法对其计算路由规则。"},
		routing.BarRuleTime: {EN: "The rule took too long.", ZH: "路由规则计算超时。"},
		routing.BarCPU:      {EN: "It has too little CPU free.", ZH: "空闲 CPU 不足。"},
		routing.BarMemory:   {EN: "It has too little memory free.", ZH: "空闲内存不足。"},
		routing.BarSlots:    {EN: "It has too few slots free.", ZH: "空闲槽位不足。"},
	}
}

// barOf puts it into words; nil for none.
func barOf(code, detail string) *reasonView {
	if code == "" {
		return nil
	}
	t, ok := bars()[code]
	if !ok {
		t = message.Text{EN: code, ZH: code}
	}
	return &reasonView{Code: code, EN: t.EN, ZH: t.ZH, Detail: detail}
}
