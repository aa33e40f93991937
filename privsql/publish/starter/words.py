"""Words in names of columns that say what a column holds, in the languages that people use.

English, German, French, Spanish, Portuguese, Italian, Dutch, Polish, Russian, Chinese and
Japanese.  A *word* has to stand alone in a name (``patient_id``, ``PatientId``, ``n° patient``); a
*stem* may be a part of a longer one (``Geburtsdatum``), and accents do not count.

>>> sorted(meanings("Geburtsdatum")), sorted(meanings("codePostal")), sorted(meanings("工资"))
(['birth'], ['id', 'postcode'], ['money'])
>>> sorted(meanings("N° de téléphone")), sorted(meanings("prix")), sorted(meanings("x1"))
(['id', 'personal'], ['money'], [])
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# What the name of a person, an address or a number of an office is called: always dropped.
PERSONAL = (
    "name names nom noms nombre nombres nome naam imie surname lastname firstname fullname"
    " username login email mail mails courriel correo tel phone mobile handy fax gsm celular"
    " ssn nin nino nhs mrn iban bic vin imei mac ip uuid guid cpf cnp cnpj dni nie nif rut rg curp"
    " pesel bsn ahv rfc sin snils inn address adresse strasse rue calle rua via street facebook"
    " twitter url website signature photo",
    "vorname nachname familienname geburtsname prenom apellido sobrenome cognome nazwisko telefon"
    " telefoon telephone celulaire cellphone emailadd kontonummer kontonr creditcard kreditkarte"
    " passport passeport pasaporte passaporte reisepass ausweis fuhrerschein kennzeichen plaque"
    " steuernummer steuernr steuerid sozialversicherung versichertennummer versicherungsnummer"
    " personalnummer personnummer patientennummer kundennummer matrikel matricule cedula"
    " socialsecurity nationalid direccion endereco indirizzo anschrift hausnummer"
    " имя фамилия отчество телефон паспорт снилс адрес почта"
    " 姓名 名字 名前 氏名 身份证 身分 护照 手机 电话 電話 邮箱 メール 地址 住所 住址"
    " 学号 工号 病历号 账号",
)
# What may be a number of a person or of something else: it depends on the values.
ID = (
    "id ids no nr num number nummer numero numer code codes kode codigo codice key ref reference"
    " serial seq sequence record row case pid uid hid hhid sid index idx n token account konto"
    " person patient subject participant respondent member user customer client employee student"
    " pupil worker persona paciente cliente kunde mitarbeiter proband patientin empleado usuario"
    " utilisateur adherent",
    "identif kennung kennziffer номер код 编号 编码 番号 序号 患者 用户 客户 会员",
)
# Of these, what stands for a person and not for a school or a product.
PERSON = (
    "id pid uid sid person patient subject participant respondent member user customer client"
    " employee student pupil worker persona paciente cliente kunde mitarbeiter proband patientin"
    " empleado usuario utilisateur adherent patno",
    "patienten kundennr kundenid mitarbeiternr 患者 用户 客户 会员 пациент клиент",
)
BIRTH = (
    "birth born dob bday geb geboren naissance ne nee nac nasc yob",
    "birthd birthy birthm geburt naissance nacimiento nascimento nascita geboorte urodzen рожден"
    " 出生 生日 生年",
)
AGE = (
    "age ages alter edad idade eta leeftijd wiek anos",
    "возраст 年龄 年齡 年齢 agegroup altersgruppe",
)
SEX = ("sex gender sexe sexo sesso genere genre genero pol geslacht", "geschlecht 性别 性別 пол")
POSTCODE = (
    "zip zipcode plz cp cep cap postcode postal postleitzahl postnr",
    "postcode codepostal codigopostal postleitzahl zipcode kodpocztowy"
    " индекс 邮编 邮政编码 郵便番号",
)
PLACE = (
    "city town village county region province district area country nation nationality ort stadt"
    " gemeinde kreis land ville commune pays ciudad pueblo pais cidade municipio estado provincia"
    " comune citta paese regione miasto kraj borough parish municipality canton kanton bezirk"
    " quartier barrio bairro location residence ward clinic hospital department dept"
    " school abteilung",
    "bundesland wohnort landkreis departement arrondissement nationalit nacionalidad nacionalidade"
    " staatsangeh город страна область регион район 城市 省 市 区县 地区 国家 国籍 都道府県",
)
TRAIT = (
    "education degree school schooling edu occupation job profession marital married civil"
    " household family beruf bildung abschluss metier emploi ocupacion profesion profissao"
    " escolaridad escolaridade estudios etudes diploma titulo professione istruzione workclass"
    " industry sector branche relationship plan",
    "educat occupat familienstand etatcivil estadocivil statocivile situationfam zivilstand"
    " schulabschluss bildungs профессия образован 学历 学歴 职业 職業 婚姻",
)
TIME = (
    "year month quarter week wave round period date day jahr monat quartal woche welle annee mois"
    " vague trimestre ano mes ola fecha data datum onda anno mese jaar maand rok",
    "год месяц дата 年份 月份 日期",
)
# Both known to others and what people may not want to be told: nobody can guess.
DOUBTFUL = (
    "race ethnicity ethnic color colour raza etnia caste migration tribe",
    "ethnic ethnie herkunft hautfarbe 民族 национальн",
)
HEALTH = (
    "hiv aids drug drugs bmi health weight height pregnant smoker smoking smokes alcohol"
    " sick pain dose pulse systolic diastolic bp glucose insulin handicap peso poids gewicht"
    " cancer tumor covid dementia salud sante saude salute therapy treatment outcome mortality"
    " dead died death severity stage vax",
    "disease diagnos illness symptom medicat medikament medicament krank gesund maladie enfermedad"
    " doenca malattia choroba ziekte bloodpress bloodgr cholesterol disab behinder discapac"
    " schwanger embaraz grossesse depress psych mental rauch fumeur fumador fumante tabac tabaq"
    " alkohol therap surgery operation vaccin vacuna impf allerg reaction hospitali disorder"
    " syndrom infect injur chronic pregnan heartrate bloodsug"
    " болезн диагноз здоров 疾病 病 诊断 診断 健康 症状 血压 血圧 吸烟 喫煙",
)
MONEY = (
    "income wage wages pay paid debt tax taxes rent cost costs price fee fees amount balance loan"
    " credit credits mortgage premium benefit pension bonus expenses spending revenue profit fine"
    " gehalt lohn miete kosten betrag saldo rente schulden kredit preis revenu revenus loyer impot"
    " cout montant solde dette pret prix ingreso ingresos renta sueldo deuda costo coste monto"
    " prestamo gasto gastos renda divida custo valor emprestimo reddito stipendio costi debito"
    " dochod loon inkomen capital gain loss claim claims earnings turnover donation",
    "salar income einkommen vermogen salaire payment wealth verdienst steuerbetrag gehalt"
    " зарплат доход долг 工资 薪 收入 債 债 费用 金额 年収 給与 貯",
)
OPINION = (
    "religion faith vote voted voting party opinion attitude belief trust happy happiness"
    " orientation sexuality union rating score grade stars nps likert agree approval satisfaction"
    " konfession glaube partei wahl stimme meinung avis parti croyance voto partido opinione fede"
    " crenca calificacion puntaje note mood feeling feelings stress loneliness preference",
    "religi politic politik politiq satisf zufried satisfait confian vertrauen einstellung encuest"
    " opinion ideolog gewerkschaft bekenntnis sexualori wahlabsicht"
    " религи парти мнени 宗教 政治 意见 意見 满意 満足 投票",
)
BEHAVIOUR = (
    "crime arrest arrested convicted offence offense prison visits clicks purchases purchase usage"
    " steps sleep drinks exercise habit habits hours diet absences absence logins trips gambling"
    " schlaf sport sommeil sueno sono delito crimen",
    "convict crimin arrest straftat vorstraf verhalten comportement comportamiento comportamento"
    " sleephour screentime absentee преступ поведен 犯罪 行为 行動",
)

CATEGORIES: dict[str, tuple[str, str]] = {
    "personal": PERSONAL,
    "id": ID,
    "person": PERSON,
    "birth": BIRTH,
    "age": AGE,
    "sex": SEX,
    "postcode": POSTCODE,
    "place": PLACE,
    "trait": TRAIT,
    "time": TIME,
    "doubtful": DOUBTFUL,
    "health": HEALTH,
    "money": MONEY,
    "opinion": OPINION,
    "behaviour": BEHAVIOUR,
}
SENSITIVE = ("health", "money", "opinion", "behaviour")

# Where a name says two things, what it says of the person counts: "Steuernummer", "city_name".
HIDES = {"birth": ("time", "age"), "postcode": ("place",), "person": ()}

CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
LETTERS = re.compile(r"[^\W\d_]+")


@lru_cache(maxsize=4096)
def meanings(name: str) -> frozenset[str]:
    """What the name of a column says: keys of ``CATEGORIES``, without ``person``."""
    return _found(name) - {"person"}


def of_a_person(name: str) -> bool:
    """Whether a name of an id speaks of a person, or of nothing in particular.

    >>> [of_a_person(name) for name in ("PatientID", "id", "visit_id", "school_no", "Kundennr")]
    [True, True, False, False, True]
    """
    words = _words(name)
    known = {*ID[0].split(), *PERSON[0].split()}
    persons = ("patient", "kunde", "mitarbeiter", "versichert", "mitglied", "teilnehm", "pacient")
    return "person" in _found(name) and all(w in known or w.startswith(persons) for w in words)


@lru_cache(maxsize=4096)
def _found(name: str) -> frozenset[str]:
    words = _words(name)
    joined = "".join(words)
    found = {
        category
        for category, (alone, stems) in _vocabulary().items()
        if words & alone.keys() or any(stem in joined for stem in stems)
    }
    for category, hidden in HIDES.items():
        if category in found:
            found.difference_update(hidden)
    return frozenset(found)


def _words(name: str) -> dict[str, None]:
    spaced = CAMEL.sub(" ", name)
    plain = unicodedata.normalize("NFKD", spaced.replace("°", " ").replace("№", "no"))
    plain = "".join(each for each in plain if not unicodedata.combining(each))
    return dict.fromkeys(LETTERS.findall(plain.casefold()))


@lru_cache(maxsize=1)
def _vocabulary() -> dict[str, tuple[dict[str, None], tuple[str, ...]]]:
    return {
        category: (dict.fromkeys(alone.split()), tuple("".join(_words(s)) for s in stems.split()))
        for category, (alone, stems) in CATEGORIES.items()
    }
