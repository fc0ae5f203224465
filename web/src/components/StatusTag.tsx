import CheckCircleFilled from '@ant-design/icons/CheckCircleFilled'
import ClockCircleOutlined from '@ant-design/icons/ClockCircleOutlined'
import CloseCircleFilled from '@ant-design/icons/CloseCircleFilled'
import DisconnectOutlined from '@ant-design/icons/DisconnectOutlined'
import FastForwardOutlined from '@ant-design/icons/FastForwardOutlined'
import FieldTimeOutlined from '@ant-design/icons/FieldTimeOutlined'
import HourglassOutlined from '@ant-design/icons/HourglassOutlined'
import MinusCircleOutlined from '@ant-design/icons/MinusCircleOutlined'
import PauseCircleOutlined from '@ant-design/icons/PauseCircleOutlined'
import PlayCircleFilled from '@ant-design/icons/PlayCircleFilled'
import QuestionCircleOutlined from '@ant-design/icons/QuestionCircleOutlined'
import RollbackOutlined from '@ant-design/icons/RollbackOutlined'
import SendOutlined from '@ant-design/icons/SendOutlined'
import StopOutlined from '@ant-design/icons/StopOutlined'
import WarningFilled from '@ant-design/icons/WarningFilled'
import type { ComponentType } from 'react'
import type { BatchState, ExecutionState, ExecutorState } from '../api/types'
import { useT } from '../i18n/useText'

export type AnyState = BatchState | ExecutionState | ExecutorState | 'ENABLED' | 'DISABLED'
export type Tone = 'wait' | 'delay' | 'go' | 'run' | 'ok' | 'bad' | 'late' | 'odd'

// One list for tags, strips and charts. Within a tone the icons differ in shape, so
// that no two states look alike to those who see no colour.
export const looks: Record<AnyState, { tone: Tone; icon: ComponentType }> = {
  WAITING: { tone: 'wait', icon: HourglassOutlined },
  DELAYED: { tone: 'delay', icon: ClockCircleOutlined },
  READY: { tone: 'wait', icon: FastForwardOutlined },
  SCHEDULED: { tone: 'wait', icon: HourglassOutlined },
  DISPATCHING: { tone: 'go', icon: SendOutlined },
  RUNNING: { tone: 'run', icon: PlayCircleFilled },
  STOPPING: { tone: 'late', icon: PauseCircleOutlined },
  UNKNOWN: { tone: 'odd', icon: QuestionCircleOutlined },
  SUCCEEDED: { tone: 'ok', icon: CheckCircleFilled },
  FAILED: { tone: 'bad', icon: CloseCircleFilled },
  TIMED_OUT: { tone: 'late', icon: FieldTimeOutlined },
  CANCELLED: { tone: 'wait', icon: StopOutlined },
  SKIPPED: { tone: 'wait', icon: MinusCircleOutlined },
  MISSED: { tone: 'late', icon: WarningFilled },
  REJECTED: { tone: 'bad', icon: RollbackOutlined },
  LOST: { tone: 'odd', icon: DisconnectOutlined },
  PENDING: { tone: 'wait', icon: HourglassOutlined },
  ONLINE: { tone: 'ok', icon: CheckCircleFilled },
  SUSPECT: { tone: 'odd', icon: QuestionCircleOutlined },
  OFFLINE: { tone: 'wait', icon: DisconnectOutlined },
  DRAINING: { tone: 'late', icon: PauseCircleOutlined },
  REFUSED: { tone: 'bad', icon: StopOutlined },
  ENABLED: { tone: 'ok', icon: PlayCircleFilled },
  DISABLED: { tone: 'wait', icon: PauseCircleOutlined },
}

// lookOf also answers for a state that a newer server may know.
export function lookOf(state: string): { tone: Tone; icon: ComponentType } {
  return looks[state as AnyState] ?? { tone: 'odd', icon: QuestionCircleOutlined }
}

export function useStateWord(): (state: string) => string {
  const t = useT()
  return (state) => (state in looks ? t(`state.${state as AnyState}`) : state)
}

export function StatusTag({ state }: { state: string }) {
  const word = useStateWord()
  const { tone, icon: Icon } = lookOf(state)
  return (
    <span className={`tag tone-${tone}`} data-state={state}>
      <span aria-hidden="true">
        <Icon />
      </span>
      {word(state)}
    </span>
  )
}
